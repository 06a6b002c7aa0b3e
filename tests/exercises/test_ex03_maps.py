"""What ex03's checks say of reads that go astray."""

import random
from typing import Any

import pytest

from minillm_serve.course.exercises.cases_ex03 import mapped_launches
from minillm_serve.course.exercises.exercise import CheckFailed
from minillm_serve.course.exercises.maps_ex03 import judge_far, judge_map, judge_reads
from minillm_serve.course.exercises.pool_ex03 import FAR_BLOCK, FAR_STRIDE, far_view, make_pool

CASE = mapped_launches(random.Random(0))[0]
POOL = make_pool(CASE)
OWN = [[block, slot] for block, kept in POOL.allowed().items() for slot in range(kept)]


def refused(got: Any) -> CheckFailed:
    with pytest.raises(CheckFailed) as found:
        judge_map(CASE, got)
    return found.value


def test_reading_exactly_what_is_there_passes() -> None:
    judge_map(CASE, {"keys": OWN, "values": OWN[::-1]})


def test_a_read_in_somebody_elses_block_is_named_and_drawn() -> None:
    foreign = next(b for b in range(len(POOL.k_cache)) if b not in POOL.allowed())
    failure = refused({"keys": OWN, "values": [*OWN, [foreign, 1]]})
    assert failure.message == (
        f"values: slot 1 of block {foreign} is read, which belongs to another sequence"
    )
    assert failure.drawing is not None
    assert failure.drawing.state(foreign, 1) == "foreign"


def test_a_read_past_the_last_token_says_how_full_the_block_is() -> None:
    last, kept = list(POOL.allowed().items())[-1]
    failure = refused({"keys": [*OWN, [last, kept]]})
    assert f"of this block {kept} of 4 slots are filled" in failure.message
    assert failure.drawing is not None
    assert failure.drawing.state(last, kept) == "empty"


@pytest.mark.parametrize("block", [-1, len(POOL.k_cache)])
def test_a_read_outside_the_pool_says_which_blocks_there_are(block: int) -> None:
    failure = refused({"keys": [*OWN, [block, 0]]})
    assert f"block {block} is read" in failure.message
    assert f"0 .. {len(POOL.k_cache) - 1}" in failure.message


def test_a_token_that_is_never_read_is_named() -> None:
    block, slot = OWN[-1]
    failure = refused({"keys": OWN[:-1]})
    assert failure.message == f"keys: slot {slot} of block {block} is never read, and holds a token"


def test_no_evidence_is_no_pass() -> None:
    assert refused({}).message == "was not run"


@pytest.mark.parametrize(
    ("times", "said"), [(2, "2 times"), (3, "more than"), (0.5, "some are never read")]
)
def test_reads_are_counted(times: float, said: str) -> None:
    needed = sum(POOL.lengths) * CASE["kv_heads"] * CASE["dim"]
    judge_reads(CASE, [needed, needed])
    with pytest.raises(CheckFailed, match=said):
        judge_reads(CASE, [needed, int(times * needed)])


def test_b140_an_offset_of_32_bits_is_named_as_such() -> None:
    with pytest.raises(CheckFailed, match="does not fit into 32 bits"):
        judge_far(CASE, {"tiles": None, "wild": "program (0, 0, 0) reads somewhere"})


def test_b140_the_far_pool_begins_its_last_block_2_31_elements_in() -> None:
    """It is address space, not memory: only the pages that are touched exist."""
    far = far_view(POOL.k_cache[:1])
    assert FAR_BLOCK * FAR_STRIDE == 2**31
    assert far[FAR_BLOCK].data_ptr() - far.data_ptr() == 2**31 * far.element_size()
    assert far[FAR_BLOCK].shape == POOL.k_cache[0].shape
    assert not far[0].any()
