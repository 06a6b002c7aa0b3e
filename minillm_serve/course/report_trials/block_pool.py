"""A crowd whose members preempt each other; timed without an engine, on a larger pool."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minillm_serve.core import BlockAllocator, BlockPool, InvariantViolation, OutOfBlocks
from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.course.report_trials.crowd import CROWD, SEED, num_served, serve_crowd, visits
from minillm_serve.parts import Part
from minillm_serve.parts.pool import AuditedPool, fit_block_pool


def trial(yours: Any) -> Trial:
    """A crowd that preempts each other; timed without an engine, on a larger pool."""
    return Trial(
        trace=CROWD,
        naive=ScanningPool,
        naive_is="looks through all blocks for free ones",
        reference=BlockPool,
        measures=(
            Measure("users served", "=", len(visits())),
            Measure("peak blocks", "<="),
            Measure("blocks leaked", "=", 0),
            Measure("allocations", "<="),
            Measure("steps", "<="),
        ),
        count=_count_pool,
        work=_churn,
    )


class ScanningPool:
    """A pool that keeps counts alone."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """See `BlockAllocator`."""
        return self._counts.count(0)

    def allocate(self, count: int) -> list[int]:
        """See `BlockAllocator`."""
        free = [block for block, references in enumerate(self._counts) if not references]
        if count > len(free):
            raise OutOfBlocks(f"{count} blocks asked for, {len(free)} free")
        for block in free[:count]:
            self._counts[block] = 1
        return free[:count]

    def acquire(self, block: int) -> None:
        """See `BlockAllocator`."""
        self._change(block, +1)

    def release(self, block: int) -> None:
        """See `BlockAllocator`."""
        self._change(block, -1)

    def ref_count(self, block: int) -> int:
        """See `BlockAllocator`."""
        return self._counts[block]

    def _change(self, block: int, by: int) -> None:
        if not self._counts[block]:
            raise InvariantViolation(f"block {block} is free")
        self._counts[block] += by


class _TalliedPool(AuditedPool):
    """Counts what it hands out."""

    allocations = 0

    def allocate(self, count: int) -> list[int]:
        self.allocations += count
        return super().allocate(count)


def _count_pool(part: Part) -> Counters:
    fit_block_pool(part)  # what this trace does not show: shared blocks
    pools: list[_TalliedPool] = []

    def build(num_blocks: int) -> BlockAllocator:
        pools.append(_TalliedPool(part, num_blocks))
        return pools[-1]

    with part.trial("the trace"):
        rehearsed = serve_crowd(pool=build)
    return {
        "users served": num_served(rehearsed),
        "peak blocks": max(step.blocks_used for step in rehearsed.steps),
        "blocks leaked": rehearsed.leaked,
        "allocations": pools[-1].allocations,
        "steps": len(rehearsed.steps),
    }


def _churn(pool_class: Callable[[int], BlockAllocator]) -> None:
    """1000 sequences come and go in a pool of 1024 blocks."""
    draw, pool, tables = random.Random(SEED), pool_class(1024), list[list[int]]()
    for _ in range(1000):
        count = draw.randrange(1, 9)
        while pool.num_free < count:
            for block in tables.pop(draw.randrange(len(tables))):
                pool.release(block)
        tables.append(pool.allocate(count))
