"""How large must the pool be? Hit rates of tenants who come back, each with a prompt of its own."""

from __future__ import annotations

import functools
import random

from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.course.chapter06.world import QUESTION, World
from minillm_serve.parts.rehearsal import words

#: Tenants, tokens of each one's system prompt, tokens a block, and questions in all.
TENANTS, SYSTEM, BLOCK_SIZE, QUESTIONS = 8, 32, 4, 96
#: Blocks of all system prompts together, and of everything else that one request holds.
WORKING_SET = TENANTS * SYSTEM // BLOCK_SIZE
BESIDE = -(-(SYSTEM + QUESTION) // BLOCK_SIZE) - SYSTEM // BLOCK_SIZE
POOLS = tuple(range(12, 97, 6))

LOADS = {
    "in turns": lambda number, draw: number % TENANTS,
    "at random": lambda number, draw: draw.randrange(TENANTS),
    "some often, some rarely": lambda number, draw: min(int(draw.expovariate(0.5)), TENANTS - 1),
}


@functools.lru_cache(maxsize=64)
def hit_rate(load: str, num_blocks: int, cache: str = "radix") -> float:
    """Share of the prompts' tokens that were found, over all questions.

    Args:
        load: a key of `LOADS`.
        num_blocks: of the pool.
        cache: a key of `PREFIX_CACHES`.
    """
    world, draw = World(cache, num_blocks, BLOCK_SIZE), random.Random(0)
    tenants = [LOADS[load](number, draw) for number in range(QUESTIONS)]
    world.serve(
        words(-1 - tenant, SYSTEM) + words(1 + number, QUESTION)
        for number, tenant in enumerate(tenants)
    )
    return world.engine.prefix_stats.hit_rate


def draw() -> Figure:
    """Hit rate over the size of the pool, for each load."""
    fig, ax = plots.figure(height=3.7)
    for load, marker in zip(LOADS, "osD", strict=True):
        rates = [100 * hit_rate(load, size) for size in POOLS]
        ax.plot(POOLS, rates, f"{marker}-", ms=4, label=load)
    ax.axvline(WORKING_SET, color=plots.COLORS["limit"], ls="--", lw=1.4)
    said = f" {WORKING_SET} blocks: all system prompts"
    ax.text(WORKING_SET, 3, said, color=plots.COLORS["limit"], fontsize=9)
    ax.set_ylim(0, 100)
    small = hit_rate("in turns", POOLS[len(POOLS) // 2])
    title = f"Just too small a pool, people in turns: {small:.0%} found"
    plots.label(ax, x="blocks in the pool", y="prompt tokens found (%)", title=title)
    return fig
