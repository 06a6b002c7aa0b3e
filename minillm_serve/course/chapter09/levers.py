"""What else there is to turn: every lever on one and the same trace, by the simulator.

Nothing here is measured on a card, and nothing says what a lever does to the answers. Quantization
is bytes and nothing else (its arithmetic stays in 16 bits); a prefix cache is `sim.shared_prefix`;
a drafter is a coin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice

import numpy as np
from matplotlib.figure import Figure

from minillm_serve.core import FixedLengths, StepRecord
from minillm_serve.course import plots
from minillm_serve.course.chapter09.users import kv_tokens
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival, Poisson, open_loop
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.lengths import LogNormal, Uniform
from minillm_serve.sim.outcome import Outcome
from minillm_serve.sim.shared_prefix import SharedPrefixCost, shortened
from minillm_serve.sim.simulation import Simulation

SYSTEM = "Llama-2-7B on an A100 40GB"
CARD, MODEL = HARDWARE["A100 40GB"], MODELS["Llama-2-7B"]
#: Tokens that all prompts begin with, the system prompt; and how much longer they are.
SYSTEM_PROMPT, OWN, ANSWERS = 512, Uniform(100, 700), LogNormal(120, 0.6, high=480)
#: Of speculation: drafts a step, how often one is right, and what a pass of the drafter takes.
DRAFTS, ALPHA, DRAFT_COST = 4, 0.7, 0.05
BLOCK = 16


@dataclass(frozen=True, slots=True)
class Setup:
    """An engine's settings, as far as levers touch them.

    Attributes:
        batch: `max_num_seqs`.
        budget: `max_num_batched_tokens`.
        weight_bits: bits a weight.
        kv_bits: bits an element of the KV cache.
        prefix: whether the system prompt is in a prefix cache.
        alpha: acceptance of drafts; None drafts nothing.
    """

    batch: int = 128
    budget: int = 1024
    weight_bits: float = 16
    kv_bits: float = 16
    prefix: bool = False
    alpha: float | None = None


@dataclass(frozen=True, slots=True)
class Lever:
    """A row of the table.

    Attributes:
        name: of the lever.
        buys: what for.
        costs: what is paid, besides what the numbers say.
        hurts: when that hurts, and what to do then.
        on: with it.
        off: without it.
    """

    name: str
    buys: str
    costs: str
    hurts: str
    on: Setup
    off: Setup = field(default_factory=Setup)


LEVERS = (
    Lever(
        "batch, 16 to 128",
        "throughput: weights are read once for more people",
        "everybody's tokens take longer",
        "promises of few ms a token: turn it down, to what the solver says",
        Setup(),
        Setup(batch=16),
    ),
    Lever(
        "KV cache in 8 bits",
        "twice the people in the same memory, half the bytes of each",
        "quality, to be measured on your task (chapter 08)",
        "long chains of reasoning: keep some layers in 16 bits, or try on a part of the traffic",
        Setup(kv_bits=8),
    ),
    Lever(
        "weights in 4 bits",
        "a shorter floor, and memory for more people",
        "quality, more than the KV cache's; algorithms differ widely (chapter 08)",
        "code and mathematics: try 8 bits first",
        Setup(weight_bits=4),
    ),
    Lever(
        "prefix cache",
        "no prompt is read twice",
        "memory for what may never be asked again",
        "prompts that have nothing in common: turn it off",
        Setup(prefix=True),
    ),
    Lever(
        "speculation",
        "several tokens for one reading of the weights",
        "arithmetic for what is refused, memory for the drafter",
        "text that is hard to guess, a full server that is bound by arithmetic: fewer drafts or "
        "none (chapter 07)",
        Setup(alpha=ALPHA),
    ),
    Lever(
        "chunked prefill, 4096 to 512",
        "typing that does not stop for other people's prompts",
        "prompts take more steps to be read",
        "nobody types, or nobody minds: offline jobs take the large budget",
        Setup(budget=512),
        Setup(budget=4096),
    ),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a setup does.

    Attributes:
        throughput: output tokens a second of a server at which people queue.
        busy_tpot: median seconds a token there.
        busy_gap: 99th percentile of the gaps between tokens there [s].
        inside: people who are being answered at once there.
        ttft: median seconds to the first token, alone on the server.
        tpot: median seconds a token, alone.
    """

    throughput: float
    busy_tpot: float
    busy_gap: float
    inside: float
    ttft: float
    tpot: float


def trace(rate: float, count: int) -> list[Arrival]:
    """So many requests; everybody's prompt begins with the system prompt."""
    drawn = islice(open_loop(Poisson(rate), OWN, ANSWERS, seed=9), count)
    return [replace(a, prompt_tokens=a.prompt_tokens + SYSTEM_PROMPT) for a in drawn]


@lru_cache(maxsize=64)
def run(setup: Setup, *, busy: int = 240, alone: int = 24) -> Seen:
    """Simulates a setup twice: with all of `busy` people at the door, and with one at a time.

    Args:
        setup: the settings.
        busy: people of the loaded run.
        alone: people of the idle one.
    """
    loaded, steps = _simulate(setup, trace(1000.0, busy))
    # From the first that ends to the last that begins: the server is full and people wait.
    first = next(i for i, step in enumerate(steps) if step.finished)
    full = [step for step in steps[first:] if step.num_waiting]
    gaps = np.repeat([s.ended - s.began for s in full], [s.num_running for s in full])
    idle, _ = _simulate(setup, trace(0.1, alone))
    seconds = sum(step.ended - step.began for step in full)
    return Seen(
        throughput=sum(step.num_sampled for step in full) / seconds,
        busy_tpot=float(np.nanmedian(loaded.tpot)),
        busy_gap=float(np.percentile(gaps, 99)),
        inside=float(np.mean([step.num_running for step in full])),
        ttft=float(np.median(idle.ttft)),
        tpot=float(np.nanmedian(idle.tpot)),
    )


def _simulate(setup: Setup, arrivals: list[Arrival]) -> tuple[Outcome, list[StepRecord]]:
    """What became of the people, and all steps."""
    bits = {"weight_bits": setup.weight_bits, "kv_bits": setup.kv_bits}
    cost = CostModel(CARD, MODEL, **bits)
    blocks = kv_tokens(cost) // BLOCK
    if setup.prefix:
        cost = SharedPrefixCost(CARD, MODEL, **bits, shared_tokens=SYSTEM_PROMPT)
        blocks -= SYSTEM_PROMPT // BLOCK
        arrivals = list(shortened(arrivals, SYSTEM_PROMPT))
    steps: list[StepRecord] = []
    simulation = Simulation(
        cost,
        num_blocks=blocks,
        max_num_seqs=setup.batch,
        max_num_batched_tokens=setup.budget,
        draft_lengths=FixedLengths(DRAFTS) if setup.alpha else None,
        acceptance=setup.alpha or 0.0,
        draft_cost=DRAFT_COST if setup.alpha else 0.0,
        on_step=steps.append,
    )
    return simulation.run(arrivals), steps


def answer_seconds(seen: Seen) -> float:
    """How long somebody who is alone waits for a whole answer of mean length."""
    return seen.ttft + (ANSWERS.mean - 1) * seen.tpot


def verdicts(lever: Lever, *, worth: float = 0.05) -> tuple[str, str]:
    """Whether a lever pays on a full server, and for somebody alone, and by what.

    Args:
        lever: one of `LEVERS`.
        worth: the least change that counts.
    """
    off, on = run(lever.off), run(lever.on)
    full = {
        "tokens/s": on.throughput / off.throughput,
        "shorter gaps": off.busy_gap / on.busy_gap,
    }
    alone = {"sooner begun": off.ttft / on.ttft, "faster typed": off.tpot / on.tpot}
    return _said(full, worth), _said(alone, worth)


def _said(gains: dict[str, float], worth: float) -> str:
    name = max(gains, key=lambda key: gains[key])
    if gains[name] >= 1 + worth:
        return f"yes: {gains[name]:.2f}x {name}"
    least = min(gains, key=lambda key: gains[key])
    return f"no: {gains[least]:.2f}x {least}" if gains[least] < 1 - worth else "no: as before"


def draw() -> Figure:
    """Every lever's gain on a full server, and for somebody alone."""
    fig, axes = plots.figure(1, 3, height=3.7, sharey=True)
    names = [lever.name for lever in LEVERS]
    pairs = [(run(lever.off), run(lever.on)) for lever in LEVERS]
    panels = (
        ("Full: tokens/s", "times as many", [b.throughput / a.throughput for a, b in pairs]),
        ("Full: longest gaps", "times as short", [a.busy_gap / b.busy_gap for a, b in pairs]),
        ("Alone: an answer", "times as fast", [_sooner(a, b) for a, b in pairs]),
    )
    for ax, (title, unit, gains) in zip(axes, panels, strict=True):
        colors = [plots.COLORS["wasted" if gain < 1 else "useful"] for gain in gains]
        bars = ax.barh(names, [gain - 1 for gain in gains], left=1, color=colors)
        ax.bar_label(bars, [f" {gain:.2f} " for gain in gains], padding=2, fontsize=9.5)
        ax.axvline(1, color=plots.INK, lw=1.2)
        wide = max(gains) - min(gains)
        ax.set_xlim(min(gains) - 0.42 * wide, max(gains) + 0.3 * wide)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        plots.label(ax, x=unit, title=title)
        ax.title.set_fontsize(11.5)
    axes[0].invert_yaxis()
    return fig


def _sooner(off: Seen, on: Seen) -> float:
    return answer_seconds(off) / answer_seconds(on)
