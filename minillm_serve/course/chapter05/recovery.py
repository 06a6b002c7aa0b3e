"""A sequence lost its blocks: computed again, or swapped? What each costs, and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.core.swap_space import RecoveryCost
from minillm_serve.course import plots
from minillm_serve.course.chapter05.systems import PAIRS, cost_of
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.simulation import Simulation

BLOCK_SIZE = 16
LENGTHS = tuple(2**e for e in range(4, 18))


def crossover(cost: RecoveryCost, block_size: int = BLOCK_SIZE) -> int | None:
    """Tokens from which on a swap is cheaper; None if it is not up to the longest that is drawn."""
    for blocks in range(1, LENGTHS[-1] // block_size + 1):
        if cost.swap_is_cheaper(blocks * block_size, blocks):
            return blocks * block_size
    return None


@dataclass(frozen=True, slots=True)
class Crowded:
    """What an engine did that had far too few blocks.

    Attributes:
        preemptions: how often somebody lost all blocks.
        swaps: of these, how often they were copied to the host.
        seconds: until everybody had an answer.
    """

    preemptions: int
    swaps: int
    seconds: float


def crowded(
    cost: CostModel, *, users: int = 32, prompt: int = 512, answer: int = 512, host: bool = True
) -> Crowded:
    """Everybody comes at once, and half of what they come to need is there.

    Args:
        cost: of a model on a card.
        users: how many come.
        prompt: tokens that each brings.
        answer: tokens that each gets.
        host: whether there is host memory to swap to; whether it is used is up to the engine.
    """
    blocks = users * (prompt + answer) // BLOCK_SIZE // 2
    simulation = Simulation(
        cost, num_blocks=blocks, block_size=BLOCK_SIZE, num_host_blocks=2 * blocks if host else 0
    )
    outcome = simulation.run(repeat(Arrival(0.0, prompt, answer), users))
    scheduler = simulation.engine.scheduler
    return Crowded(scheduler.num_preemptions, scheduler.num_swaps, outcome.makespan)


def draw(systems: Sequence[str] = ("Llama-2-7B on an H200", "Llama-3-8B on an A100")) -> Figure:
    """Both costs over the length of what was lost, a picture a system."""
    fig, axes = plots.figure(1, len(systems), height=3.9, sharey=True, squeeze=False)
    for ax, system in zip(axes[0], systems, strict=True):
        _draw_one(ax, cost_of(system).recovery(BLOCK_SIZE), system)
    axes[0, 0].set_ylabel("ms until its KV is there again")
    return fig


def _draw_one(ax: Axes, cost: RecoveryCost, system: str) -> None:
    again = [1e3 * cost.recompute_seconds(length) for length in LENGTHS]
    swap = [1e3 * cost.swap_seconds(length // BLOCK_SIZE) for length in LENGTHS]
    ax.plot(LENGTHS, again, color=plots.COLORS["compute"], label="compute again")
    ax.plot(LENGTHS, swap, color=plots.COLORS["bandwidth"], label="swap out and in")
    where = crossover(cost)
    if where is not None and where > BLOCK_SIZE:
        ax.axvline(where, color=plots.INK, lw=1.4, ls=":")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = LENGTHS[::3]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=9)
    ax.minorticks_off()
    name = system.replace(" on an ", ", ")
    plots.label(ax, x="tokens that were lost", title=f"{name}:\na swap pays {_from(where)}")


def _from(tokens: int | None) -> str:
    if tokens is None:
        return f"not up to {LENGTHS[-1]:,} tokens"
    return "always" if tokens == BLOCK_SIZE else f"from {tokens:,} tokens on"


def table() -> list[tuple[str, str, Crowded]]:
    """For each system: when a swap pays, and what its engine did."""
    return [
        (name, _from(crossover(cost_of(name).recovery(BLOCK_SIZE))), crowded(cost_of(name)))
        for name in PAIRS
    ]
