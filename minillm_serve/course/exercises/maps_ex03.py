"""Judging what an answer to ex03 read: which slots, how often, how far away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minillm_serve.course.exercises.answers_ex03 import far_tile
from minillm_serve.course.exercises.block_map import BlockMap
from minillm_serve.course.exercises.compare import first_difference
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.course.exercises.pool_ex03 import make_pool


def judge_map(case: Case, got: Any) -> None:
    """Exactly the slots that hold tokens of the launch may have been read.

    Raises:
        CheckFailed: with a drawing.
    """
    pool = make_pool(case)
    num_blocks, size = len(pool.k_cache), case["block_size"]
    if not isinstance(got, Mapping) or not got:
        raise CheckFailed("was not run")
    for what, slots in got.items():
        reads = [(int(block), int(slot)) for block, slot in slots]
        drawn = BlockMap(num_blocks, size, pool.allowed(), reads)
        if not drawn.is_right():
            raise CheckFailed(f"{what}: {_first_fault(drawn)}", drawing=drawn)


def _first_fault(drawn: BlockMap) -> str:
    if outside := drawn.out_of_bounds():
        return (
            f"block {outside[0][0]} is read, and the pool has blocks 0 .. {drawn.num_blocks - 1}: "
            "an id from beyond the end of a row of the block table, or an offset that is wrong"
        )
    own = drawn.allowed
    for block, slot in drawn.reads:
        if block not in own:
            return f"slot {slot} of block {block} is read, which belongs to another sequence"
        if slot >= own[block]:
            return (
                f"slot {slot} of block {block} is read, which holds no token: of this block "
                f"{own[block]} of {drawn.block_size} slots are filled, and a mask must hold back "
                "the other lanes"
            )
    missed = [(b, s) for b, kept in own.items() for s in range(kept) if (b, s) not in drawn.reads]
    return f"slot {missed[0][1]} of block {missed[0][0]} is never read, and holds a token"


def judge_reads(case: Case, got: Any) -> None:
    """Every key and value may be read once.

    Raises:
        CheckFailed: more, or fewer.
    """
    pool = make_pool(case)
    needed = sum(pool.lengths) * case["kv_heads"] * case["dim"]
    for what, count in zip(("keys", "values"), got, strict=True):
        times = count / needed
        if count == needed:
            continue
        group = case["heads"] // case["kv_heads"]
        why = "more than there is, which a mask should hold back, or more than once"
        if times == group:
            why = f"once for each of the {group} query heads of a group, instead of once for all"
        elif times == 2:
            why = "twice: the running softmax needs one pass"
        elif times < 1:
            why = "so some are never read"
        raise CheckFailed(
            f"it reads {times:.3g} times the numbers that the {what} have: {why}",
            expected=needed,
            got=count,
        )


def judge_far(case: Case, got: Any) -> None:
    """A block that begins 2^31 elements in.

    Raises:
        CheckFailed: the address went elsewhere.
    """
    if isinstance(got, Mapping) and got.get("wild"):
        raise CheckFailed(
            f"{got['wild']}: the offset of block 8 does not fit into 32 bits. A block id is int32; "
            "make it int64 before it is multiplied by a stride"
        )
    difference = first_difference(far_tile(case), got, rtol=1e-3, atol=1e-3)
    if difference is not None:
        raise CheckFailed(
            "another value was expected",
            index=difference.index,
            expected=difference.expected,
            got=difference.got,
        )
