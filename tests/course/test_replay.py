"""A trace served in real time: by schedulers that wait for company too, and without spinning."""

import pytest

from minillm_serve import LLM
from minillm_serve.course.replay import figures, replay
from minillm_serve.course.trace import User
from tests.llm.tiny import save_tiny

USERS = [User(0.02 * i, tuple(range(5, 9 + i)), 3 + i) for i in range(5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("scheduler", ["static", "dynamic", "continuous"])
def test_everybody_is_served_and_no_step_is_empty(folder, scheduler):
    """Five users and batches of two: the last batch is never full, and is let go all the same."""
    llm = LLM(folder, num_blocks=64, max_num_seqs=2, scheduler=scheduler)
    calls, step = [], llm.engine.step
    llm.engine.step = lambda: calls.append(1) or step()
    served = replay(llm, USERS)
    assert [m.num_output_tokens for m in served.requests] == [u.output_len for u in USERS]
    assert len(calls) == len(served.steps)
    assert 0 < figures(served)["slot_utilisation"] <= 1
