"""Experiment: who waits how long. Priorities with ageing, in one line of people."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter05 import fairness
from minillm_serve.course.chapter05.fairness import Line
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict

URGENT, PATIENT = plots.BLUE, plots.ORANGE
CHOICES = ["falls by half or more", "stays about the same", "doubles or more"]


def line(a: int, p: int, load: float) -> Line:
    """The same people every time, under priorities with ageing."""
    return fairness.run("priority", ageing=a, load=load, p=p)


def experiment() -> FormulaExperiment:
    """The experiment, ready for the last line of a cell."""
    start = knobs()
    return FormulaExperiment(
        draw,
        {
            "a": controls.powers_of_two("ageing a", 1, 1024, start["a"], unit="newcomers"),
            "p": controls.integer("priority p", 1, 10, start["p"]),
            "load": controls.real("load ρ", 0.8, 1.3, start["load"], step=0.05),
        },
        title="Who waits how long",
        formula=r"\text{overtaken} \leq a \cdot (p - q)",
        symbols={
            "a": Symbol("a", "newcomers that weigh as much as one step of priority"),
            "p": Symbol("p", "priority of the unimportant", "The lower goes first"),
            "q": Symbol("q", "priority of the important"),
        },
        live=lambda a, p, load: {"q": "0"},
        result=lambda a, p, load: f"{fairness.bound(a, p):,.0f} people",
        describe=describe,
        predict=_question(),
    )


def _question() -> Predict:
    """What ageing does to the mean of all: nothing, since it makes nobody's answer shorter."""
    start = knobs()
    strict = fairness.run("priority", ageing=None, load=start["load"], p=start["p"])
    aged = fairness.run("priority", ageing=16, load=start["load"], p=start["p"])
    before, after = strict.waited.mean(), aged.waited.mean()
    change = after / before
    said = CHOICES[0] if change <= 0.5 else CHOICES[2] if change >= 2 else CHOICES[1]
    return Predict(
        f"Without ageing the unimportant wait {strict.mean_patient:.0f} s on average, the "
        f"important {strict.mean_urgent:.1f} s. With an ageing of 16 newcomers the former wait "
        f"{aged.mean_patient:.0f} s. The mean wait of all people together ...",
        answer=said,
        choices=CHOICES,
        explain=f"{before:.1f} s before, {after:.1f} s after. The server does the same work in "
        "another order, so that what one waits less others wait more: the important now wait "
        f"{aged.mean_urgent:.1f} s.",
    )


def describe(a: int, p: int, load: float) -> str:
    """What the picture shows, in words."""
    seen = line(a, p, load)
    return (
        f"{fairness.PEOPLE} people, every {fairness.EVERY}th of them unimportant, at a load of "
        f"{load:.2f}. The important wait {seen.mean_urgent:.1f} s on average, the unimportant "
        f"{seen.mean_patient:.1f} s and {seen.longest_patient:.1f} s at most. Nobody was overtaken "
        f"by more than {seen.most_overtaken}; the bound is {fairness.bound(a, p):,.0f}."
    )


def draw(a: int, p: int, load: float) -> Figure:
    """Everybody's wait, and by how many each was overtaken."""
    fig, (waits, passed) = plots.figure(1, 2, height=4.2, width_ratios=[1.25, 1])
    seen = line(a, p, load)
    _draw_waits(waits, seen)
    _draw_overtaken(passed, seen, fairness.bound(a, p))
    return fig


def _draw_waits(ax: Axes, seen: Line) -> None:
    for patient, color, name, symbols in (
        (False, URGENT, "important", ("q",)),
        (True, PATIENT, "unimportant", ("p", "a")),
    ):
        who = seen.patient == patient
        dots = ax.scatter(
            seen.arrived[who], seen.waited[who], s=11, color=color, label=name, rasterized=True
        )
        plots.mark(dots, *symbols)
    ax.set_ylim(0, 1.25 * max(float(seen.waited.max()), 1.0))
    title = f"Mean wait: {seen.mean_urgent:.1f} s and {seen.mean_patient:.1f} s"
    plots.label(ax, x="came after (s)", y="waited (s)", title=title)
    ax.legend(frameon=False, loc="upper left", ncols=2)


def _draw_overtaken(ax: Axes, seen: Line, bound: float) -> None:
    who = np.flatnonzero(seen.patient)
    bars = ax.bar(who, seen.overtaken[who], width=fairness.EVERY * 0.8, color=PATIENT, lw=0)
    plots.mark(bars, "p")
    most = max(float(seen.overtaken.max()), 10.0)
    top = 1.2 * (bound if bound < 2 * most else most)
    said = f"a (p − q) = {bound:,.0f}"
    if bound < top:
        limit = ax.axhline(bound, color=plots.COLORS["limit"], ls="--", lw=1.6)
        plots.mark(limit, "a", "p", "q")
    text = ax.text(
        0, min(bound, 0.93 * top) + 0.02 * top, said if bound < top else f"↑ {said}",
        color=plots.COLORS["limit"], va="bottom" if bound < top else "center", fontsize=9.5,
    )  # fmt: skip
    plots.mark(text, "a", "p", "q")
    ax.set_ylim(0, top)
    title = f"Overtaken by {seen.most_overtaken} at most"
    plots.label(ax, x="the unimportant, by arrival", y="later ones who began before", title=title)


def knobs(**changes: Any) -> dict[str, Any]:
    """The experiment's settings at the start, with changes; for tests and text."""
    return {"a": 64, "p": 5, "load": 1.1, **changes}
