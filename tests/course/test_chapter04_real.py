"""Chapter 04's three runs on the real model."""

import pytest

from minillm_serve import LLM
from minillm_serve.course.chapter04 import real
from minillm_serve.course.trace import User

pytestmark = pytest.mark.model

LENGTHS = (3, 9, 2, 1, 7)
#: The second crowd comes when the first one, of three in two slots, is long done.
USERS = [
    User(0.0 if i < 3 else 1.5, tuple(range(1000 + i, 1012 + i)), n) for i, n in enumerate(LENGTHS)
]


@pytest.fixture(scope="module", params=["static", "dynamic", "continuous"])
def llm(request: pytest.FixtureRequest) -> LLM:
    return LLM(scheduler=request.param, max_num_seqs=2, num_blocks=32, max_model_len=128)


@pytest.fixture(scope="module")
def served(llm: LLM) -> real.Served:
    return real.serve(llm, USERS)


def test_everybody_gets_the_tokens_that_they_would_get_alone(llm: LLM, served: real.Served) -> None:
    for number, user in enumerate(USERS, 1):
        alone = real.serve(llm, [User(0.0, user.prompt, user.output_len)])
        assert alone.token_ids["1"] == served.token_ids[str(number)]
        assert len(alone.token_ids["1"]) == user.output_len


def test_the_record_counts_the_tokens_and_times_of_the_metrics(served: real.Served) -> None:
    assert served.tokens == sum(LENGTHS)
    assert set(served.times()) == set(served.metrics) == set(served.arrivals)
    for name, (began, ended) in served.times().items():
        metrics = served.metrics[name]
        assert metrics.finished_time is not None
        assert began + served.began == pytest.approx(metrics.first_scheduled_time, abs=1e-6)
        assert ended + served.began == pytest.approx(metrics.finished_time, abs=1e-6)
    assert 0 < served.busy_share <= 1
    assert served.mean("ttft") <= served.seconds


def test_who_is_left_over_waits_as_the_scheduler_says(llm: LLM, served: real.Served) -> None:
    """Three come, two fit. Static keeps the third until somebody else comes; the others do not."""
    began, _ = served.times()["3"]
    waits = type(llm.engine.scheduler).__name__ == "StaticScheduler"
    assert (began >= USERS[3].arrival) == waits


def test_the_engine_is_left_as_it_was(llm: LLM, served: real.Served) -> None:
    assert not llm.engine.has_unfinished
    assert llm.engine.record is None
    assert served.step_seconds > 0
