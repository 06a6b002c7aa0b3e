"""The end: nobody new, those under way get their time, and a last word if it was not enough."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from minillm_serve.server.background import BackgroundServer
from tests.server.running import eventually, slow_down


@pytest.fixture
def slow(start, make_llm):
    """Starts a server whose steps last, with so much time to drain."""

    with ExitStack() as begun:

        def begin(drain_seconds):
            settings = {"drain_seconds": drain_seconds}
            return begun.enter_context(start(settings, llm=slow_down(make_llm(), 0.02)))

        yield begin


def test_answers_under_way_come_to_their_end_and_newcomers_are_told_to_come_again(slow):
    running = slow(60.0)
    with ThreadPoolExecutor() as threads:
        whole = threads.submit(running.complete, max_tokens=60, ignore_eos=True)
        pieces = threads.submit(running.complete_in_pieces, max_tokens=60, ignore_eos=True)
        eventually(lambda: len(running.llm.engine.scheduler.running) == 2)
        stopping = threading.Thread(target=running._server.stop)
        stopping.start()
        eventually(lambda: running.service.draining)
        late = running.post("/v1/completions", prompt="hello")
        assert (late.status_code, late.json()["error"]["code"]) == (503, "shutting_down")
        assert "retry-after" in late.headers
        assert running.client.get("/ready").status_code == 503
        assert running.client.get("/health").status_code == 200
        assert whole.result()["usage"]["completion_tokens"] == 60
        ends = [chunk["choices"][0]["finish_reason"] for chunk in pieces.result()]
        assert ends[-1] == "length"
    stopping.join()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{running.url}/health")
    assert not running.engine.health.alive


def test_what_is_not_done_in_time_gets_a_last_event_b49(slow):
    running = slow(0.3)
    with ThreadPoolExecutor() as threads:
        body = {"prompt": "hello", "max_tokens": 400, "ignore_eos": True}
        asked = [
            threads.submit(running.post, "/v1/completions", **body, stream=stream)
            for stream in (True, True, False)
        ]
        eventually(lambda: len(running.llm.engine.scheduler.running) == 3)
        running._server.stop()
        streams, whole = [future.result() for future in asked[:2]], asked[2].result()
    for reply in streams:
        *pieces, error, done = [line for line in reply.text.split("\n\n") if line]
        assert len(pieces) > 1
        assert '"code":"shutting_down"' in error
        assert done == "data: [DONE]"
    assert (whole.status_code, whole.json()["error"]["code"]) == (503, "shutting_down")
    running.wait_until_idle()


def test_a_second_signal_ends_the_waiting(slow):
    running = slow(1000.0)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(
            running.post, "/v1/completions", prompt="hello", max_tokens=400, ignore_eos=True
        )
        eventually(lambda: running.llm.engine.scheduler.running)
        running._server._server.handle_exit(2, None)
        eventually(lambda: running.service.draining)
        assert not asked.done()
        running._server._server.handle_exit(2, None)
        running._server.stop()
        assert asked.result().status_code == 503
    assert running.llm.llm_engine.observers == []  # it has put away everything all the same


def test_a_port_is_free_again_and_stopping_twice_does_no_harm_b155(start):
    """What a notebook's cell does that is run again."""
    with start() as first:
        port = int(first.url.rsplit(":", 1)[1])
        assert first.complete(max_tokens=1)["choices"]
        first._server.stop()
    with start() as second, BackgroundServer(second.app, port=port) as url:
        assert url.endswith(f":{port}")
        assert httpx.get(f"{url}/v1/models").status_code == 200
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1 cannot be had"):
            BackgroundServer(second.app, port=port)
