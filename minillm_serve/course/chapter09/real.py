"""The real model's steps over the model of a step: measured here, and as they were committed."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import StepRecord
from minillm_serve.course import plots
from minillm_serve.sim.cost import CostModel, Work

PATH = Path("benchmarks/results/calibration.json")
REMEDY = "write it with: minillm-serve bench calibration --output"
PROMPT_TOKENS = 8

#: Batch -> the work of a decode step, and its seconds.
Steps = Mapping[int, tuple[Work, float]]


def decode_steps(
    llm: LLM, batch: int, count: int = 10, *, seed: int = 0, prompt_tokens: int = PROMPT_TOKENS
) -> tuple[Work, float]:
    """A typical decode step of so many sequences: its work, and its median seconds.

    Args:
        llm: idle, with room for all of them.
        batch: sequences (B).
        count: tokens that each is given.
        seed: of the prompts, which are random ids.
        prompt_tokens: of each.
    """
    steps: list[StepRecord] = []
    draw = random.Random(seed)
    prompts = [[draw.randint(1_000, 40_000) for _ in range(prompt_tokens)] for _ in range(batch)]
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    llm.engine.on_step = steps.append
    try:
        llm.generate(prompts, params, use_tqdm=False)
    finally:
        llm.engine.on_step = None
    decoding = [s for s in steps if s.num_tokens == s.num_sampled == batch]
    seconds = statistics.median(s.ended - s.began for s in decoding)
    stored = round(statistics.mean(s.tokens_stored for s in decoding))
    return Work(batch, batch, batch, stored, stored), seconds


def measure(llm: LLM, sizes: Sequence[int], rounds: int = 2) -> dict[int, tuple[Work, float]]:
    """Batch -> its typical step.

    Sizes take turns, so that a slow moment of the machine is everybody's. And as more rows never
    take less time, a step that took longer than that of a larger batch was disturbed: it counts as
    long as that.

    Args:
        llm: idle, with room for the largest batch.
        sizes: batches, ascending.
        rounds: turns; of each size the shortest counts.
    """
    decode_steps(llm, 2, 3)  # the first steps of anything are slow: not counted
    works: dict[int, Work] = {}
    shortest = dict.fromkeys(sizes, math.inf)
    for turn in range(rounds):
        for size in sizes:
            works[size], seconds = decode_steps(llm, size, seed=turn)
            shortest[size] = min(shortest[size], seconds)
    return {
        size: (works[size], min(shortest[larger] for larger in sizes[place:]))
        for place, size in enumerate(sizes)
    }


def draw(steps: Steps, cost: CostModel, fitted: Sequence[int]) -> Figure:
    """Measured steps and throughput over the model's curves.

    Args:
        steps: what was measured.
        cost: with both efficiencies fitted to some of the steps.
        fitted: batches of these; the others were foretold.
    """
    fig, (time, give) = plots.figure(1, 2, height=4.0)
    context = steps[max(steps)][0].context / max(steps)
    batches = list(range(1, max(steps) + 1))
    modelled = [cost.seconds(Work.decode(B, round(context))) for B in batches]
    time.plot(batches, [1e3 * t for t in modelled], color=plots.COLORS["model"], label="cost model")
    give.plot(
        batches, [B / t for B, t in zip(batches, modelled, strict=True)],
        color=plots.COLORS["model"], label="cost model",
    )  # fmt: skip
    told = [B for B in steps if B not in fitted]
    for chosen, name, look in (
        (fitted, "fitted", {"markerfacecolor": "white", "markeredgecolor": plots.INK}),
        (told, "foretold", {}),
    ):
        taken = [steps[B][1] for B in chosen]
        named = f"measured, {name}"
        plots.measured(time, chosen, [1e3 * t for t in taken], label=named, **look)
        plots.measured(
            give, chosen, [B / t for B, t in zip(chosen, taken, strict=True)], label=named, **look
        )
    time.set_ylim(0, None)
    give.set_ylim(0, None)
    worst = max(abs(cost.seconds(work) / seconds - 1) for work, seconds in (steps[B] for B in told))
    plots.label(time, x="batch B", y="ms a step", title=f"Foretold within {worst:.0%}")
    top = max(B / seconds for B, (_, seconds) in steps.items())
    plots.label(give, x="batch B", y="tokens a second", title=f"Up to {top:,.0f} tokens/s here")
    _finish(time, give)
    return fig


def _finish(time: Axes, give: Axes) -> None:
    for ax in (time, give):
        ax.title.set_fontsize(11.5)
    time.legend(loc="upper left", frameon=False)
    give.legend(loc="lower right", frameon=False)


def committed(start: Path | None = None) -> dict[str, Any]:
    """The record of `minillm-serve bench calibration`, from here or a folder above.

    Raises:
        FileNotFoundError: it is not there; says how to write it.
    """
    folder = (start or Path.cwd()).resolve()
    for place in (folder, *folder.parents):
        if (place / PATH).is_file():
            record: dict[str, Any] = json.loads((place / PATH).read_text(encoding="utf-8"))
            return record
    raise FileNotFoundError(f"there is no {PATH} here or above; {REMEDY} {PATH}")
