"""What goes wrong inside: the right status, an error in the stream, nobody who waits for ever."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from minillm_serve.core import PartError
from tests.server.running import eventually, slow_down, unread

BODY = {"prompt": "hello", "max_tokens": 30, "ignore_eos": True}


def fail_at(llm, step, error):
    """Lets one step raise."""
    forward, count = llm.engine.executor.forward, iter(range(1, 10**9))

    def failing(inputs):
        if next(count) == step:
            raise error
        return forward(inputs)

    llm.engine.executor.forward = failing
    return llm


def linger(loop):
    """Lets an engine's thread live on for a while after it has told everybody that it ends."""
    close = loop._close

    def slow_close():
        close()
        time.sleep(0.3)

    loop._close = slow_close


def test_a_step_that_fails_is_500_for_its_requests_alone(start, make_llm):
    with start(llm=fail_at(make_llm(), 3, MemoryError("the secret of the device"))) as running:
        reply = running.post("/v1/completions", **BODY)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "computation_failed")
        assert "secret" not in reply.text
        assert running.complete(max_tokens=2)["choices"]
        assert running.client.get("/health").status_code == 200
        running.wait_until_idle()
        assert running.figure("request_success_total", finished_reason="error") == 1


@pytest.mark.parametrize("step", [1, 4])
def test_an_error_has_a_status_before_the_first_token_and_is_an_event_after(start, make_llm, step):
    with start(llm=fail_at(make_llm(), step, RuntimeError("boom"))) as running:
        reply = running.post("/v1/completions", stream=True, **BODY)
        if step == 1:
            assert (reply.status_code, reply.json()["error"]["type"]) == (500, "server_error")
            return
        assert reply.status_code == 200
        *_, error, done = [line for line in reply.text.split("\n\n") if line]
        assert error.startswith('data: {"error":{')
        assert done == "data: [DONE]"
        running.wait_until_idle()


def test_too_many_waiting_are_429_with_retry_after(start, make_llm):
    llm = slow_down(make_llm(max_num_seqs=1, max_num_waiting=2), 0.02)
    with start({"retry_after": 7}, llm=llm) as running, ExitStack() as others:
        for count in range(3):
            others.enter_context(unread(running, max_tokens=400, ignore_eos=True))
            eventually(lambda n=count: llm.engine.scheduler.num_unfinished == n + 1)
        for more in ({}, {"stream": True}):
            reply = running.post("/v1/completions", **BODY, **more)
            assert reply.status_code == 429
            assert int(reply.headers["retry-after"]) >= 7  # more, if the queue takes longer
            assert reply.json()["error"]["code"] == "overloaded"


def test_a_request_that_waits_beyond_its_time_is_503(start, make_llm):
    llm = slow_down(make_llm(max_num_seqs=1), 0.02)
    with start({"max_queue_seconds": 0.2}, llm=llm) as running:
        with unread(running, max_tokens=400, ignore_eos=True):
            eventually(lambda: llm.engine.scheduler.running)
            for more in ({}, {"stream": True}):
                reply = running.post("/v1/completions", **BODY, **more)
                assert (reply.status_code, reply.json()["error"]["code"]) == (503, "deadline")
                assert "retry-after" in reply.headers
        assert running.figure("request_success_total", finished_reason="deadline") == 2


def test_an_engine_that_dies_tells_everybody_and_the_probes_b112(start, make_llm):
    llm = make_llm(max_num_seqs=1)
    fault = PartError("scheduler", "Mine", "lost its books")
    with start(llm=slow_down(fail_at(llm, 20, fault))) as running:
        linger(running.engine._loop)
        with ThreadPoolExecutor() as threads:
            bodies = [BODY, BODY, {**BODY, "stream": True}]
            asked = [threads.submit(running.post, "/v1/completions", **body) for body in bodies]
        replies = [future.result() for future in asked]
        for reply in replies:
            if reply.status_code == 200:  # a stream that had begun
                assert '"code":"engine_dead"' in reply.text
            else:
                assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_dead")
        assert any(reply.status_code == 503 for reply in replies)
        for path in ("/health", "/ready"):
            reply = running.client.get(path)
            assert (reply.status_code, "retry-after" in reply.headers) == (503, True)
        reply = running.post("/v1/completions", **BODY)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_dead")
        assert running.figure("engine_healthy") == 0


def test_an_engine_that_hangs_is_ill_after_a_while_and_nobody_hangs_with_it_b112(start, make_llm):
    """A step that does not come to an end; stuck_after is short here, a minute by default."""
    llm, hold = make_llm(), threading.Event()
    forward, held = llm.engine.executor.forward, []

    def hanging(inputs):
        if hold.is_set():
            held.append(True)
            while hold.is_set():
                time.sleep(0.01)
        return forward(inputs)

    llm.engine.executor.forward = hanging
    with start({"stuck_after": 0.5}, llm=llm) as running:
        assert running.complete(max_tokens=2)["choices"]
        hold.set()
        with ThreadPoolExecutor() as threads:
            first = threads.submit(running.post, "/v1/completions", **BODY)
            eventually(lambda: held)
            late = threads.submit(running.post, "/v1/completions", **BODY, stream=True)
            for reply in (first.result(), late.result()):
                assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_dead")
        health = running.client.get("/health")
        assert health.status_code == 503
        assert "has not come to an end" in health.json()["problem"]
        hold.clear()
        eventually(lambda: running.client.get("/health").status_code == 200)
        assert running.complete(max_tokens=2)["choices"]
        running.wait_until_idle()
