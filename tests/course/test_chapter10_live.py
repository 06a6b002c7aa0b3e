"""Chapter 10 against a real server on a tiny model: a crowd, a dashboard, the trace over HTTP."""

import asyncio
import time

import pytest

from minillm_serve import LLM
from minillm_serve.async_llm import AsyncLLM
from minillm_serve.course.chapter10.child import Child, ask, knock_until_served
from minillm_serve.course.chapter10.crowd import Crowd
from minillm_serve.course.chapter10.dashboard import OFF, ON, RECORDED, Dashboard
from minillm_serve.course.chapter10.recorder import record
from minillm_serve.course.chapter10.watch import Span, read
from minillm_serve.course.replay import figures, replay
from minillm_serve.course.replay_http import replay_http
from minillm_serve.course.trace import User
from minillm_serve.server.app import create_app
from minillm_serve.server.background import BackgroundServer
from minillm_serve.server.settings import ServerSettings
from tests.llm.tiny import save_tiny
from tests.server.running import run_async

PROMPTS = [[5, 6, 7], [8, 9]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def serving(tiny):
    """A server with two seats and a queue of two."""
    llm = LLM(tiny, num_blocks=64, block_size=4, max_num_seqs=2, max_num_waiting=2)
    settings = ServerSettings(served_model_name="tiny", drain_seconds=0.0)
    server = BackgroundServer(create_app(AsyncLLM(llm), settings))
    yield server
    server.stop()


def test_a_crowd_is_served_or_told_when_to_come_again_and_the_metrics_agree(serving):
    before = read(serving.url)
    crowd = Crowd(serving.url, "tiny", PROMPTS, max_tokens=20, rate=400.0)
    visits = []
    while len(visits) <= 10:  # on a busy machine fewer come than should
        visits = [*visits, *crowd.ask_for(0.6)]
    span = Span(before, read(serving.url))
    served = [visit for visit in visits if visit.status == 200]
    refused = [visit for visit in visits if visit.status == 429]
    assert len(served) + len(refused) == len(visits)
    assert served
    assert refused
    assert all(visit.retry_after >= 1 for visit in refused)
    assert all(len(visit.tokens) >= 1 and visit.ttft > 0 for visit in served)
    assert span.refused == len(refused)
    assert span.grown("request_success_total", finished_reason="length") == len(served)
    assert (span.running, span.waiting, span.kv_usage) == (0, 0, 0.0)


def test_a_crowd_that_is_sent_away_hangs_up_and_leaves_nothing_behind_b117(serving):
    crowd = Crowd(serving.url, "tiny", PROMPTS, max_tokens=100, rate=50.0)
    crowd.start()
    crowd.start()  # does nothing
    while not any(visit.status == 200 for visit in list(crowd.visits)):
        time.sleep(0.01)
    crowd.stop()
    crowd.stop()
    assert not crowd.is_asking
    while read(serving.url).total("num_requests_running"):
        time.sleep(0.01)
    assert read(serving.url).total("kv_cache_usage_perc") == 0


def test_the_dashboard_watches_a_crowd_until_it_is_told_to_stop_b152_b154(serving):
    crowd = Crowd(serving.url, "tiny", PROMPTS, max_tokens=8, rate=30.0)
    recorded = record(crowd, [20.0, 40.0], each=0.3, every=0.1)
    assert not crowd.is_asking
    assert {point.rate for point in recorded} == {20.0, 40.0}

    async def press():
        dashboard = Dashboard(crowd, recorded, every=0.05)
        first = dashboard.picture.value
        assert dashboard.caption.value == RECORDED
        dashboard.rate.value = 12.0
        assert crowd.rate == 12.0
        assert dashboard.picture.value != first
        dashboard.button.click()
        assert dashboard.button.description == OFF
        while len(dashboard.watcher.points) < 4:
            await asyncio.sleep(0.01)
        assert "12 questions a second" in dashboard.caption.value
        dashboard.button.click()
        await asyncio.sleep(0)
        assert (dashboard.is_watching, crowd.is_asking) == (False, False)
        assert dashboard.button.description == ON
        assert dashboard.error is None
        dashboard.start()
        serving.stop()
        while dashboard.error is None:
            await asyncio.sleep(0.01)
        assert "Connect" in dashboard.problem.value
        dashboard.stop()
        return dashboard

    dashboard = run_async(press())
    bundle = dashboard._repr_mimebundle_()
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert bundle["text/plain"] == repr(dashboard)


def test_the_trace_over_http_gives_the_same_figures_as_in_process(tiny):
    users = [User(0.01 * n, tuple(range(3, 8 + n)), 4 + n) for n in range(5)]
    llm = LLM(tiny, num_blocks=64, block_size=4, max_num_seqs=8)
    over_http, inside = replay_http(llm, users), replay(llm, users)
    wanted = [user.output_len for user in users]
    assert [m.num_output_tokens for m in over_http.requests] == wanted
    assert [m.num_output_tokens for m in inside.requests] == wanted
    assert all(m.ttft > 0 and m.tpot >= 0 for m in over_http.requests)
    assert set(figures(over_http)) == set(figures(inside))
    assert over_http.steps
    assert llm.engine.on_step is None


@pytest.mark.slow  # starts two processes; the chapter does so in every run
def test_a_server_that_is_killed_is_gone_and_comes_again_on_its_port_b155(tiny):
    child = Child([str(tiny), "--num-blocks", "16"])
    child.start()
    url = child.wait()
    assert ask(url) == "200"
    assert child.kill() == -9
    assert not child.is_alive
    assert ask(url) == "ConnectError"
    child.start()
    knocks, _ = knock_until_served(url)
    assert knocks >= 1
    assert child.url == url
    child.stop()
    assert not child.is_alive
    child.stop()  # does nothing


@pytest.mark.slow
def test_a_server_that_cannot_start_says_so():
    child = Child(["no/such/model"])
    child.start()
    with pytest.raises(RuntimeError, match="has not started"):
        child.wait()
