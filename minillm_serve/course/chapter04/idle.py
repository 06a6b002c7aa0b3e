"""Experiment: idle cells as area, and how it grows with the spread of answer lengths."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter04 import bars, schedules, theory
from minillm_serve.course.chapter04.bars import Bar
from minillm_serve.course.chapter04.schedules import Schedule
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict

KINDS = ("static", "continuous")
SEED = 1
WIDEST = 2.0  # greatest spread on the slider
FORMULA = r"\text{gain} \to \frac{\mathrm{E}[\mathrm{max}(n_1, \ldots, n_B)]}{\bar{n}}"
SYMBOLS = {
    "n": Symbol("n_1", "tokens of an answer", "The wider the spread, the longer the longest",
                control="cv"),
    "B": Symbol("n_B", "the last of the batch", "The longest of many is longer", control="B"),
    "mean": Symbol(r"\bar{n}", "tokens of an answer on average"),
}  # fmt: skip


def experiment() -> FormulaExperiment:
    """The experiment, ready for the last line of a cell."""
    start = {name: control.value for name, control in knobs().items()}
    return FormulaExperiment(
        draw,
        knobs(),
        title="Idle cells",
        formula=FORMULA,
        symbols=SYMBOLS,
        live=live,
        result=lambda **deal: f"{theory.gain(_lengths(**deal), deal['B']):.2f}",
        describe=describe,
        predict=Predict(
            f"{start['people']} answers of {start['mean']} tokens on average, some short, a few "
            f"very long, in a batch of {start['B']}. What share of the cells is empty with "
            "*static* batching?",
            answer=round(100 * (1 - both(**start)[0].record.slot_utilisation)),
            unit="%",
            within=0.15,
            explain="A row is empty from the end of its answer to the end of the longest one.",
        ),
    )


def knobs() -> dict[str, Any]:
    """Its controls."""
    tip = "Standard deviation of the answers' lengths, over their mean"
    return {
        "cv": controls.real("spread of answers", 0, WIDEST, 1.0, tip=tip),
        "B": controls.integer("batch B", 1, 16, 8),
        "mean": controls.integer("mean answer", 4, 40, 16, unit="tokens"),
        "people": controls.integer("people", 8, 120, 64),
    }


def _lengths(cv: float, mean: int, **_: Any) -> theory.Known:
    return theory.spread(mean, cv)


@lru_cache(maxsize=256)
def both(cv: float, B: int, mean: int, people: int) -> tuple[Schedule, ...]:
    """A static and a continuous schedule of the same answers, asked for all at once."""
    answers = _lengths(cv, mean).sample(np.random.default_rng(SEED), people)
    crowd = schedules.at_once(answers.tolist())
    return tuple(schedules.run(kind, crowd, B)[0] for kind in KINDS)


def seen_gain(**deal: Any) -> float:
    """Steps of static over steps of continuous, counted."""
    static, continuous = both(**deal)
    return len(static.record) / len(continuous.record)


def live(**deal: Any) -> dict[str, str]:
    """The symbols' values."""
    return {"n": "n₁", "B": f"n with B = {deal['B']}", "mean": f"{deal['mean']}"}


def describe(**deal: Any) -> str:
    """What the picture shows, in words."""
    told = [
        f"{kind}: {len(one.record)} steps, {one.record.idle_cells} idle cells, "
        f"{one.record.slot_utilisation:.0%} used"
        for kind, one in zip(KINDS, both(**deal), strict=True)
    ]
    limit = theory.gain(_lengths(**deal), deal["B"])
    return (
        f"{'; '.join(told)}. Continuous needs {seen_gain(**deal):.2f} times fewer steps; "
        f"while the queue never empties it would be {limit:.2f} times."
    )


def draw(cv: float, B: int, mean: int, people: int) -> Figure:
    """Both tables of slots and steps, and the gain over the spread."""
    deal = {"cv": cv, "B": B, "mean": mean, "people": people}
    fig, whole = plots.figure(height=5.4)
    whole.remove()
    grid = fig.add_gridspec(2, 2, width_ratios=[1.75, 1])
    pair = both(**deal)
    above = fig.add_subplot(grid[0, 0])
    below = fig.add_subplot(grid[1, 0], sharex=above)
    for ax, kind, one in zip((above, below), KINDS, pair, strict=True):
        draw_cells(ax, kind, one)
    above.set_xlim(0, max(len(one.record) for one in pair))
    above.tick_params(labelbottom=False)
    below.set_xlabel("step")
    _draw_gain(fig.add_subplot(grid[:, 1]), deal)
    return fig


def draw_cells(ax: Axes, kind: str, one: Schedule) -> None:
    """A box an answer, and boxes of idle cells, over steps."""
    record = one.record
    wrote = _cells(ax, bars.busy(one), facecolor=plots.COLORS["useful"])
    empty = _cells(ax, bars.idle(one), facecolor=plots.COLORS["wasted"], alpha=0.75)
    plots.mark(wrote, "mean")
    plots.mark(empty, "n", "B")
    ax.set_ylim(record.num_slots - 0.4, -0.6)
    ax.set_yticks([0, record.num_slots - 1] if record.num_slots > 1 else [0])
    ax.grid(visible=False)
    used = f"{record.slot_utilisation:.0%} used, {record.idle_cells:,} idle"
    plots.label(ax, y="slot", title=f"{kind.capitalize()}: {len(record)} steps, {used}")


def _cells(ax: Axes, drawn: list[Bar], **look: Any) -> PolyCollection:
    """All of one kind as one artist, in units of cells."""
    corners = [
        [
            (bar.first_step, bar.slot - 0.46),
            (bar.first_step, bar.slot + 0.46),
            (bar.end_step, bar.slot + 0.46),
            (bar.end_step, bar.slot - 0.46),
        ]
        for bar in drawn
    ]
    found = PolyCollection(corners, edgecolor="white", lw=0.7, **look)
    ax.add_collection(found)
    return found


def _draw_gain(ax: Axes, deal: dict[str, Any]) -> None:
    """The theory's curve, and the schedule of the picture as a point on it, or beside it."""
    spreads = np.linspace(0, WIDEST, 21)
    curve = [theory.gain(theory.spread(deal["mean"], cv), deal["B"]) for cv in spreads]
    (line,) = ax.plot(spreads, curve, color=plots.COLORS["model"], label="queue never empties")
    plots.mark(line, "n", "B", "mean")
    gain = seen_gain(**deal)
    plots.measured(ax, [deal["cv"]], [gain], label="this schedule")
    ax.set_ylim(0.9, max(1.5, *curve, gain) * 1.08)
    plots.label(ax, x="spread of answers", y="steps of static / continuous",
                title=f"Gain: {gain:.2f} times")  # fmt: skip
    ax.legend(loc="upper left", frameon=False, fontsize=9)
