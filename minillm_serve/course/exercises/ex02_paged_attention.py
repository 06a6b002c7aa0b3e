"""ex02: a block pool and paged attention in torch (slots `block_pool` and `attention`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minillm_serve.course.exercises import answers_ex02 as answers
from minillm_serve.course.exercises import cases_ex02 as cases
from minillm_serve.course.exercises import pools_ex02 as pools
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Limits, Part

Named = tuple[str, float, Callable[[random.Random], Sequence[Case]]]


def _scripted(*named: Named) -> tuple[Check, ...]:
    return tuple(
        Check(
            name,
            points,
            made,
            run=pools.play,
            judge=pools.judge_script,
            describe=pools.described,
        )
        for name, points, made in named
    )


def _attended(*named: Named) -> tuple[Check, ...]:
    return tuple(
        Check(name, points, made, judge=answers.judge_attention, describe=cases.described)
        for name, points, made in named
    )


ALLOCATE = Part(
    id="allocate",
    answer="Blocks",
    checks=_scripted(
        ("hands out every block once, with one reference", 1, pools.allocate_cases),
        ("takes nothing if too few are free", 1, pools.too_many_cases),
    ),
    hints=(
        "What must be true before you touch the list? Ask that question first.",
        "If count > self.num_free: raise OutOfBlocks(...), with both numbers in its message. Only "
        "then take blocks: list.pop() takes one from the end.",
        "taken = [self.free.pop() for _ in range(count)]; then self.counts[block] = 1 for each.",
    ),
)

POOL = Part(
    id="pool",
    answer="MyBlockPool",
    checks=_scripted(
        ("gives back what was released, and hands it out again", 1, pools.reuse_cases),
        ("frees a shared block with its last reference only", 1, pools.shared_cases),
        ("refuses to release or to share a block that is free", 1, pools.double_free_cases),
        ("keeps its books over hundreds of calls", 1, pools.random_cases),
    ),
    hints=(
        "A block is free when its count is 0, and then it is in the list. When does a count become "
        "0, and what may never happen to a count that is 0 already?",
        "Both methods begin alike: a count of 0 raises InvariantViolation, naming the block.",
        "release: subtract 1; if the count is now 0, append the block to self.free. Not earlier: "
        "somebody else may still read it.",
    ),
)

ATTENTION = Part(
    id="attention",
    answer="paged_attention",
    checks=_attended(
        ("attends to a sequence that fills its block", 1, cases.one_block_cases),
        ("follows the block table", 1, cases.table_cases),
        ("stops at the last token", 1, cases.partial_cases),
        ("lets a group of query heads share its KV head", 1, cases.grouped_cases),
        ("takes one softmax over all blocks, however large the scores", 1, cases.softmax_cases),
        ("lets no row see what comes after it", 1, cases.causal_cases),
        ("leaves out what lies in unused slots, be it NaN", 1, cases.leftover_cases),
        ("returns q's dtype", 1, cases.dtype_cases),
    ),
    hints=(
        "Take one sequence at a time. Its block table is a list of indices: what does "
        "k_cache[table] give, and in which order are its dimensions?",
        "k_cache[table] is [blocks, H_kv, P, D]. transpose(1, 2).flatten(0, 1) makes it "
        "[blocks * P, H_kv, D], in the order of the tokens; cut it at the length.",
        "repeat_interleave(H // H_kv, dim=1) gives every query head its KV head. Not repeat: that "
        "would deal them out in turn.",
        "Row r of n rows stands at position length - n + r. Scores of later positions become "
        "-inf before the softmax: masked_fill(..., float('-inf')).",
    ),
)

EXERCISE = Exercise(
    id="ex02",
    name="paged_attention",
    title="Blocks, and attention that reads them",
    chapter="02",
    parts=(ALLOCATE, POOL, ATTENTION),
    slot="block_pool, attention",
    hidden_points=8,
    limits=Limits(seconds=40.0),
)
