"""ex02's judges: what they expect is right, and what they say about a wrong answer is so."""

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from minillm_serve.core import BlockPool
from minillm_serve.course.exercises import answers_ex02 as answers
from minillm_serve.course.exercises import cases_ex02 as cases
from minillm_serve.course.exercises import pools_ex02 as pools
from minillm_serve.course.exercises.ex02_paged_attention import EXERCISE
from minillm_serve.course.exercises.exercise import CheckFailed, Part
from minillm_serve.runtime.attention import conformance
from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.attention.naive import NaiveAttention

ATTENTION = EXERCISE.part("attention")


def all_cases(part: Part, seed: int) -> list[Any]:
    return [case for check in part.checks for case in check.cases(random.Random(seed))]


def engines_own(case: dict[str, Any]) -> torch.Tensor:
    """The naive backend's answer to a case."""
    starts = case["query_start_loc"]
    metadata = AttentionMetadata(
        query_start_loc=starts,
        seq_lens=case["seq_lens"],
        block_tables=case["block_tables"],
        slot_mapping=torch.zeros(len(case["q"]), dtype=torch.int64),
        max_query_len=int((starts[1:] - starts[:-1]).max()),
        max_seq_len=int(case["seq_lens"].max()),
    )
    problem = conformance.Problem(case["q"], case["k_cache"], case["v_cache"], metadata)
    return conformance.attend(NaiveAttention(), problem)


@pytest.mark.parametrize("seed", range(3))
def test_the_engines_own_attention_passes_every_case(seed: int) -> None:
    for case in all_cases(ATTENTION, seed):
        got = engines_own(case)
        carried = got.float() if got.dtype is torch.bfloat16 else got
        answers.judge_attention(case, carried.numpy())


@pytest.mark.parametrize("seed", range(3))
def test_the_engines_own_pool_passes_every_script(seed: int) -> None:
    for part in ("allocate", "pool"):
        for case in all_cases(EXERCISE.part(part), seed):
            pools.judge_script(case, pools.play(BlockPool, case))


def test_the_expected_output_is_dense_attention() -> None:
    case = cases.make_case(random.Random(0), [(5, 5)], heads=6, kv_heads=2)
    table = case["block_tables"][0, :2].long()
    k, v = (
        case[name][table].transpose(1, 2).flatten(0, 1)[:5].transpose(0, 1).double()
        for name in ("k_cache", "v_cache")
    )
    q = case["q"].transpose(0, 1).double()
    dense = F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True, scale=case["scale"], enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(answers.attention(case), dense)


def test_an_output_is_its_attention_weights() -> None:
    case = cases.make_case(random.Random(1), [(1, 6)], heads=1, kv_heads=1)
    weights = answers.attention(case)[0, 0].view(-1, 4)
    own = case["block_tables"][0, :2].tolist()
    assert weights.sum().item() == pytest.approx(1)
    assert set(weights.nonzero()[:, 0].tolist()) == set(own)
    assert weights[own[1], 2:].tolist() == [0, 0]


def test_a_read_behind_the_last_token_is_drawn_slot_by_slot() -> None:
    """B137: what lies in unused slots may not be read."""
    case = cases.make_case(random.Random(2), [(1, 5)], heads=1, kv_heads=1)
    wrong = answers.attention(case).float().numpy()
    last = int(case["block_tables"][0, 1])
    wrong[0, 0, last * 4 + 3] += 0.25
    with pytest.raises(CheckFailed, match="reads on behind the last token") as failure:
        answers.judge_attention(case, wrong)
    drawn = failure.value.drawing
    assert drawn is not None
    assert drawn.state(last, 3) == "empty"
    assert drawn.state(last, 0) == "right"
    assert failure.value.index == f"[0][0][{last * 4 + 3}]"


def test_a_read_of_another_sequences_block_is_drawn() -> None:
    case = cases.make_case(random.Random(3), [(1, 4), (1, 4)], heads=1, kv_heads=1)
    wrong = answers.attention(case).float().numpy()
    mine, others = case["block_tables"][:, 0].tolist()
    wrong[0] = np.roll(wrong[0], (others - mine) * 4, axis=-1)
    with pytest.raises(CheckFailed, match=f"reads block {others}") as failure:
        answers.judge_attention(case, wrong)
    assert failure.value.drawing is not None
    assert failure.value.drawing.state(others, 0) == "foreign"
    assert failure.value.drawing.state(mine, 0) == "unread"


@pytest.mark.parametrize(
    ("got", "said"),
    [(None, "is there a `return`"), ([1.0], "should return a tensor"), (np.ones((1, 2)), "shape")],
)
def test_what_is_no_output_is_told_apart(got: Any, said: str) -> None:
    case = cases.make_case(random.Random(4), [(1, 4)])
    with pytest.raises(CheckFailed, match=said):
        answers.judge_attention(case, got)


class Leaky(BlockPool):
    """B10: takes what there is before it refuses."""

    def allocate(self, count: int) -> list[int]:
        if count > self.num_free:
            super().allocate(self.num_free)
        return super().allocate(count)


def test_b10_a_refusal_that_takes_blocks_is_found_at_its_call() -> None:
    case = pools.script(3, ("allocate", 1), ("allocate", 5))
    with pytest.raises(CheckFailed, match=r"call 2, allocate\(5\).* took blocks all the same"):
        pools.judge_script(case, pools.play(Leaky, case))


def test_evidence_that_was_made_up_is_no_script() -> None:
    case = pools.script(2, ("allocate", 1))
    for forged in (None, [], 7, [{"call": "allocate(1)"}], [1, 2], [{"call": 3, "free": 2}] * 2):
        with pytest.raises(CheckFailed):
            pools.judge_script(case, forged)


def test_random_scripts_make_no_wrong_calls_and_all_kinds_of_them() -> None:
    for case in pools.random_cases(random.Random(5)):
        log = pools.play(BlockPool, case)
        assert {entry["raised"] for entry in log} <= {"", "OutOfBlocks"}
        assert {method for method, _ in case["calls"]} == {"allocate", "acquire", "release"}
        assert len(case["calls"]) == 300
