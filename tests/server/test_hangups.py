"""Clients that hang up, in whatever phase: their requests end, and nothing of them stays."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.server.running import eventually, slow_down, unread

LONG = {"max_tokens": 400, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def slow(start, make_llm):
    """A server whose steps take a while, on a pool that preempts nobody."""
    llm = slow_down(make_llm(num_blocks=1024, max_num_seqs=8), 0.01)
    with start(llm=llm) as running:
        yield running


def num_aborted(running):
    """Answers that were cut short so far. (Others end by themselves, sooner or later.)"""
    return running.figure("request_success_total", finished_reason="abort")


def hang_up_after(running, num_lines, path="/v1/completions", **body):
    """Reads so many lines of a stream, then closes the socket."""
    body = {"prompt": "hello", "stream": True, **LONG, **body}
    with (
        httpx.Client(base_url=running.url, timeout=60) as client,
        client.stream("POST", path, json=body) as reply,
    ):
        lines = reply.iter_lines()
        for _ in range(num_lines):
            next(lines)


def test_a_stream_that_is_left_ends_within_a_step_b99(slow):
    before = num_aborted(slow)
    hang_up_after(slow, 6)
    slow.wait_until_idle()
    assert num_aborted(slow) == before + 1
    assert slow.llm.engine.scheduler.blocks.num_used == 0
    assert slow.complete(max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


def test_all_answers_to_a_prompt_end_b43(slow):
    before = num_aborted(slow)
    hang_up_after(slow, 10, n=3, temperature=1.0)
    slow.wait_until_idle()
    assert num_aborted(slow) == before + 3
    chat = {"messages": [{"role": "user", "content": "hi"}], "prompt": None, "n": 2}
    hang_up_after(slow, 10, "/v1/chat/completions", **chat)
    slow.wait_until_idle()
    assert num_aborted(slow) == before + 5


def test_a_client_that_drops_a_plain_request_ends_it_b100(slow):
    before = num_aborted(slow)
    with unread(slow, **LONG):
        eventually(lambda: slow.llm.engine.scheduler.running)
    slow.wait_until_idle()
    assert num_aborted(slow) == before + 1
    for _ in range(100):
        slow.complete(max_tokens=1)
    slow.wait_until_idle()


def hang_up_within(running, seconds, **body):
    """Sends a request and hangs up without reading a byte."""
    with unread(running, **body):
        time.sleep(seconds)


def test_twenty_streams_dropped_at_random_moments_disturb_nobody_b101_b117(slow):
    """Before the first token, while prompts are read, while answers come, while others wait."""
    draw = random.Random(3)
    prompt = list(range(3, 90)) * 2
    before = num_aborted(slow)
    with ThreadPoolExecutor(20) as threads, unread(slow, **LONG):
        eventually(lambda: slow.llm.engine.scheduler.running)
        for index in range(20):
            body = {**LONG, "prompt": prompt[index:], "stream": index % 3 > 0, "max_tokens": 300}
            threads.submit(hang_up_within, slow, draw.random() * 0.5, **body)
        assert slow.complete(max_tokens=5, ignore_eos=True)["usage"]["completion_tokens"] == 5
    slow.wait_until_idle()
    assert slow.client.get("/health").status_code == 200
    assert slow.complete(max_tokens=3, ignore_eos=True)["usage"]["completion_tokens"] == 3
    eventually(lambda: slow.figure("num_requests_running") == 0)
    for name in ("num_requests_waiting", "kv_cache_usage_perc"):
        assert slow.figure(name) == 0
    assert num_aborted(slow) > before


def test_five_aborted_streams_are_five_b118(start, make_llm):
    """Each answer that was let in is counted once, under the reason of its end."""
    with start(llm=slow_down(make_llm())) as running:
        for _ in range(5):
            hang_up_after(running, 4)
        running.wait_until_idle()
        num_answers, num_tokens = 5, 0
        two = {"max_tokens": 3, "ignore_eos": True, "n": 2}
        for body in (two, {"stop_token_ids": [*range(97)]}):
            reply = running.complete(**body)
            num_answers += len(reply["choices"])
            num_tokens += reply["usage"]["completion_tokens"]
        figures = running.figures()
        ends = {
            name.split('finished_reason="')[1].split('"')[0]: value
            for name, value in figures.items()
            if name.startswith("minillm:request_success_total")
        }
        assert ends == {"abort": 5, "length": 2, "stop": 1, "error": 0, "deadline": 0}
        assert sum(ends.values()) == num_answers
        assert running.figure("generation_tokens_total") > num_tokens
        assert running.figure("prompt_tokens_total") == 7 * len("hello")
        assert running.figure("e2e_request_latency_seconds_count") == 2
        assert running.figure("time_to_first_token_seconds_count") == 7


def test_a_reader_that_does_not_read_holds_nobody(slow):
    body = {"stream": True, "n": 8, "logprobs": 20, "max_tokens": 100, "ignore_eos": True}
    with unread(slow, **body) as connection:
        connection.recv(1)
        before = slow.figure("generation_tokens_total")
        slow.complete(max_tokens=5, ignore_eos=True)
        # Its answer comes to its end in the engine although nobody takes it.
        eventually(lambda: not slow.llm.engine.has_unfinished)
        assert slow.figure("generation_tokens_total") - before > 700
        assert slow.llm.engine.scheduler.blocks.num_used == 0
    slow.wait_until_idle()
