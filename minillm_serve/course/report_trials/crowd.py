"""The crowd that pools and schedulers are tried on: more than the engine has room for."""

from __future__ import annotations

import random
from collections.abc import Callable

from minillm_serve.core import BlockAllocator, BlockPool, ContinuousScheduler, MakeScheduler
from minillm_serve.parts.rehearsal import Rehearsed, Visit, rehearse, words

SEED = 0


def visits() -> list[Visit]:
    """Most say little, some a lot; they come faster than they leave."""
    draw, coming, step = random.Random(SEED), list[Visit](), 0
    for user in range(48):
        prompt = words(user, int(4 * 16 ** draw.random()))
        coming.append(Visit(step, prompt, int(2 * 24 ** draw.random())))
        step += draw.randrange(4)
    return coming


SLOTS, BLOCKS = 8, 40
CROWD = f"{len(visits())} users of an engine with {BLOCKS} blocks and {SLOTS} slots (seed {SEED})"


def serve_crowd(
    *,
    pool: Callable[[int], BlockAllocator] = BlockPool,
    scheduler: MakeScheduler = ContinuousScheduler,
) -> Rehearsed:
    """Serves everybody, without a model."""
    return rehearse(
        visits(),
        pool=pool,
        scheduler=scheduler,
        num_blocks=BLOCKS,
        block_size=4,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=32,
    )


def num_served(rehearsed: Rehearsed) -> int:
    """Users who got as many tokens as they asked for."""
    return sum(n == v.output_len for n, v in zip(rehearsed.lengths, visits(), strict=True))
