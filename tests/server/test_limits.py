"""What an engine would never serve, or not heed, is a 400: it would be refused for ever."""

import pytest

from minillm_serve.core import ContinuousScheduler
from tests.server.test_bad_requests import ASKS, ENDPOINTS, refused

TEN = [5] * 10


class OwnPolicy:
    """By priority, in somebody's own way."""

    def rank(self, request, number):
        return -request.priority


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_priority_is_refused_where_nobody_heeds_it(server, path):
    message = refused(server, path, {**ASKS[path], "priority": -1}, "priority")
    for part in ("priority=-1", "'fcfs'", "--policy priority"):
        assert part in message
    assert server.post(path, **ASKS[path], priority=0, max_tokens=1).status_code == 200


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"policy": "sjf"}, 400),
        ({"policy": OwnPolicy()}, 200),
        ({"parts": {"scheduler": ContinuousScheduler}}, 200),
    ],
)
def test_who_goes_first_says_whether_a_priority_is_one(start, options, status):
    with start(**options) as running:
        assert running.post("/v1/completions", prompt="a", priority=3).status_code == status


def test_a_list_of_more_tokens_than_may_ever_wait_is_refused(start):
    """It is no 429, which it would be for ever; and no error where seats are free."""
    with start(max_num_seqs=2, max_waiting_tokens=40) as running:
        for body in ({"prompt": [TEN] * 3}, {"prompt": [TEN * 2] * 2, "n": 2, "max_tokens": 1}):
            body = {"max_tokens": 5, **body}
            message = refused(running, "/v1/completions", body, "prompt")
            assert "tokens: only 40 may wait here" in message
        for body in ({"prompt": [TEN] * 2, "max_tokens": 30}, {"prompt": [TEN] * 3}):
            running.wait_until_idle()
            reply = running.post("/v1/completions", **{"max_tokens": 3, **body})
            assert reply.status_code == 200, reply.text


@pytest.fixture(scope="module")
def terse(start):
    """A server that tells a hundred log probabilities at a time."""
    with start({"max_logprobs_total": 100}) as running:
        yield running


@pytest.mark.parametrize(
    ("fits", "more", "total"),
    [
        ({"prompt": [TEN, TEN], "prompt_logprobs": 4}, {"prompt_logprobs": 5}, 120),
        ({"prompt": TEN, "prompt_logprobs": 4, "n": 2}, {"n": 3}, 150),
        ({"prompt": TEN, "logprobs": 4, "n": 2, "max_tokens": 10}, {"n": 3}, 150),
        (
            {"prompt": TEN, "logprobs": 4, "echo": True, "max_tokens": 10},
            {"max_tokens": 11},
            105,
        ),
        ({"logprobs": True, "top_logprobs": 4, "max_tokens": 20}, {"max_tokens": 21}, 105),
        # A chat's own are told once, however many answers there are.
        ({"prompt_logprobs": 2, "n": 5, "max_tokens": 1}, {"prompt_logprobs": 4}, 110),
    ],
)
def test_more_log_probabilities_than_can_be_written_down_are_refused_b95(terse, fits, more, total):
    path = "/v1/completions" if "prompt" in fits else "/v1/chat/completions"
    turns = {"messages": [{"role": "user", "content": "hi"}]}  # 22 tokens in the template
    fits = fits if "prompt" in fits else {**turns, **fits}
    reply = terse.post(path, **fits)
    assert reply.status_code == 200, reply.text
    reply = terse.post(path, **{**fits, **more})
    error = reply.json()["error"]
    param = "logprobs" if "logprobs" in fits else "prompt_logprobs"
    assert (reply.status_code, error["param"]) == (400, param)
    assert f"{total} log probabilities: at most 100" in error["message"]
