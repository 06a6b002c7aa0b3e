"""What a step of so many rows costs: timed on the real engine, and by the model of a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import StepCosts, StepRecord
from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.course import plots
from minillm_serve.course.chapter07.exchange import drafting, executor_of
from minillm_serve.runtime.inputs import StepInputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.drafter import Drafter, Proposal
from minillm_serve.runtime.spec.measure import measure_costs
from minillm_serve.sim.speculation import Seconds


class Parrot:
    """A drafter that always says the same, for nothing: so only verification takes time.

    Args:
        token: what it says.
    """

    kv_cache: KVCache | None = None

    def __init__(self, token: int) -> None:
        self.token = token

    def propose(self, items: list[ScheduledSequence]) -> Proposal:
        """See `Drafter.propose`."""
        return Proposal([[self.token] * item.num_drafts for item in items])

    def observe(self, batch: Batch, inputs: StepInputs, hidden: Tensor) -> None:
        """Looks at nothing."""


def time_rows(
    llm: LLM, prompt: Sequence[int], *, most: int, rounds: int, token: int = 0
) -> dict[int, float]:
    """Seconds of a step of one sequence, by its rows: a token and the drafts behind it.

    An answer of `most` + 1 tokens begins with a step of `most` rows. Its drafts are all wrong, so
    there is room for one draft less in each further step, down to a step of one row.

    Args:
        llm: idle, built with a `speculative_config`.
        prompt: token ids.
        most: rows of the widest step.
        rounds: answers; of each number of rows the shortest time counts.
        token: one that the model does not say here.
    """
    times: dict[int, list[float]] = {}

    def note(step: StepRecord) -> None:
        if step.num_sampled and step.num_tokens <= most:
            times.setdefault(step.num_tokens, []).append(step.ended - step.began)

    params = SamplingParams(temperature=0, max_tokens=most + 1, ignore_eos=True)
    with drafting(llm, Parrot(token), most - 1):
        llm.engine.on_step = note
        for _ in range(rounds):
            llm.generate([list(prompt)], params, use_tqdm=False)
    llm.engine.on_step = None
    return {rows: min(taken) for rows, taken in sorted(times.items())}


def measured(llm: LLM, drafter: Drafter, seconds: float = 1.0) -> StepCosts:
    """What steps and drafts cost, as the engine measures it when it starts.

    Args:
        llm: idle, built with a `speculative_config`.
        drafter: whose drafts.
        seconds: about how long it may take.
    """
    scheduler = llm.engine.scheduler
    with drafting(llm, drafter):
        return measure_costs(
            executor_of(llm),
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_len=scheduler.max_len,
            seconds=seconds,
        )


class Line(NamedTuple):
    """Seconds of a step that are the same for any number of rows, and seconds a row.

    Attributes:
        fixed: for what is done once: moving weights, above all.
        per_row: for what is done for each row: arithmetic, above all.
    """

    fixed: float
    per_row: float

    @classmethod
    def through(cls, times: Mapping[int, float]) -> Line:
        """The line nearest to measured times, relative to them."""
        rows = np.array(list(times), float)
        seconds = np.array(list(times.values()))
        sides = np.stack([np.ones_like(rows), rows], 1) / seconds[:, None]
        (fixed, per_row), *_ = np.linalg.lstsq(sides, np.ones_like(rows), rcond=None)
        return cls(float(fixed), float(per_row))

    def seconds(self, rows: int) -> float:
        """Of a step of so many rows."""
        return self.fixed + self.per_row * rows


def weights_read(llm: LLM) -> int:
    """Bytes of weight matrices that a step of few rows moves: codes where there are any."""
    model = executor_of(llm).model
    return model.bytes_read


def draw_rows(times: Mapping[int, float], line: Line, card: Seconds, name: str) -> Figure:
    """A step's time over its rows, in steps of one row: here, and on a card.

    Args:
        times: rows -> seconds, measured.
        line: through them.
        card: seconds of a step of B sequences with k drafts each.
        name: of the card and what runs on it.
    """
    fig, axes = plots.figure(1, 2, height=3.6, sharey=True)
    rows, one = list(range(1, max(times) + 1)), line.seconds(1)
    curves = [[line.seconds(r) / one for r in rows], [card(1, r - 1) / card(1, 0) for r in rows]]
    names = ("a + b rows", "cost model")
    for ax, curve, label in zip(axes, curves, names, strict=True):
        ax.axhline(1, color=plots.COLORS["limit"], ls="--", lw=1.4, label="if rows were free")
        ax.plot(rows, curve, color=plots.COLORS["model"], label=label)
        ax.set_xticks([1, 5, 10, 15])
    relative = [t / one for t in times.values()]
    plots.measured(axes[0], list(times), relative, label="measured")
    title = f"Here 4 drafts make it {curves[0][4]:.2f} steps"
    y = "time / time of a step of one row"
    plots.label(axes[0], x="rows: 1 + drafts", y=y, title=title)
    plots.label(axes[1], x="rows: 1 + drafts", title=f"{name}: {curves[1][4]:.3f} steps")
    axes[0].set_ylim(0, None)
    for ax in axes:
        ax.title.set_fontsize(11.5)
        ax.legend(loc="upper left", frameon=False)
    return fig
