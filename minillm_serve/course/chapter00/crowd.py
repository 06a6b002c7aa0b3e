"""Experiment: a thousand people arrive. The load, the line, and where it explodes."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.sim import HARDWARE, MODELS, Hardware, ModelShape, decode_step_time
from minillm_serve.sim.arrivals import Gamma, Poisson, Process, Regular, open_loop
from minillm_serve.sim.lengths import Fixed, Geometric
from minillm_serve.sim.queueing import Run, Stationary, run_slots, service_rate, slots

PEOPLE = 1000
RHO_ASKED = 0.95
CHOICES = ["a quarter longer", "about twice as long", "more than four times as long"]
ARRIVALS = {
    "independent (Poisson)": "poisson",
    "in bursts": "bursts",
    "evenly spaced": "regular",
}


@dataclass(frozen=True, slots=True)
class Crowd:
    """People at a card that decodes `B` of them at a time.

    A step costs what the roofline says for a cache of prompt and half an answer each. Prompts'
    own steps are left out: the line is a little longer in truth.

    Attributes:
        card: the accelerator.
        model: what it runs.
        prompt_tokens: length of every prompt.
    """

    card: Hardware
    model: ModelShape
    prompt_tokens: int = 512

    def step_time(self, B: int, n: int) -> float:
        """Seconds of one decode step of B answers of n tokens."""
        return decode_step_time(self.card, self.model, B, self.prompt_tokens + n // 2)

    def mu(self, B: int, n: int) -> float:
        """Answers per second when all B places are taken."""
        return service_rate(B, n, self.step_time(B, n))

    def formula(self, lam: float, B: int, n: int) -> Stationary:
        """Long-run averages for independent people."""
        return slots(lam, lambda k: k / (n * self.step_time(k, n)), B)

    def run(self, lam: float, B: int, n: int, arrivals: str, seed: int = 0) -> Run:
        """A thousand people, one by one."""
        people = islice(
            open_loop(process(arrivals, lam), Fixed(self.prompt_tokens), Geometric(n), seed=seed),
            PEOPLE,
        )
        times, tokens = zip(*((p.time, p.output_tokens) for p in people), strict=True)
        return run_slots(times, tokens, lambda k: self.step_time(k, n), B)


def process(arrivals: str, rate: float) -> Process:
    """The process of this name.

    Raises:
        ValueError: there is none.
    """
    known: dict[str, Process] = {
        "poisson": Poisson(rate),
        "bursts": Gamma(rate, cv=3.0),
        "regular": Regular(rate),
    }
    if arrivals not in known:
        raise ValueError(f"arrivals={arrivals!r}: choose from {', '.join(known)}")
    return known[arrivals]


def experiment(card: str = "A100 80GB", model: str = "Llama-2-7B") -> FormulaExperiment:
    """The experiment, ready for the last line of a cell.

    Args:
        card: a key of `sim.HARDWARE`.
        model: a key of `sim.MODELS`.
    """
    crowd = Crowd(HARDWARE[card], MODELS[model])
    start = knobs()
    del start["arrivals"]

    def live(lam: float, B: int, n: int, arrivals: str) -> dict[str, str]:
        return {
            "lam": f"{lam:.1f} /s",
            "t": f"{1e3 * crowd.step_time(B, n):.1f} ms",
        }

    return FormulaExperiment(
        lambda **knobs: draw(crowd, **knobs),
        {
            "lam": controls.real("arrivals λ", 0.2, 16, start["lam"], step=0.2, unit="per s"),
            "n": controls.powers_of_two("answer n", 32, 1024, int(start["n"]), unit="tokens"),
            "B": controls.powers_of_two("batch B", 1, 128, int(start["B"])),
            "arrivals": controls.choice("they come", ARRIVALS, "poisson"),
        },
        title="A thousand people arrive",
        formula=r"\rho = \lambda \cdot \frac{n \cdot t_B}{B}",
        symbols={
            "rho": Symbol(r"\rho", "load", "From 1 on the line grows without end"),
            "lam": Symbol(r"\lambda", "people per second"),
            "n": Symbol("n", "tokens of an answer"),
            "t": Symbol("t_B", "time of one step", "Grows slowly with the batch", control="B"),
            "B": Symbol("B", "batch: people served at once"),
        },
        live=live,
        result=lambda lam, B, n, arrivals: f"{lam / crowd.mu(B, n):.2f}",
        describe=lambda **knobs: describe(crowd, **knobs),
        predict=_question(crowd, **start),
    )


def _question(crowd: Crowd, lam: float, B: int, n: int) -> Predict:
    """What a quarter more people do to the line; asked of the settings at the start."""
    mu = crowd.mu(B, n)
    now, then = crowd.formula(lam, B, n).wait, crowd.formula(RHO_ASKED * mu, B, n).wait
    longer = CHOICES[0] if then < 1.5 * now else CHOICES[1] if then < 4 * now else CHOICES[2]
    return Predict(
        f"The card can answer {mu:.1f} people a second, and {lam:g} come: a load of "
        f"{lam / mu:.2f}. Now a quarter more come, a load of {RHO_ASKED}. "
        "Their mean time in line is ...",
        answer=longer,
        choices=CHOICES,
        explain=f"It goes from {_brief(now)} to {_brief(then)}: waiting grows like "
        "1 / (1 - ρ), and the last free places are the dear ones.",
    )


def describe(crowd: Crowd, lam: float, B: int, n: int, arrivals: str) -> str:
    """What the picture shows, in words."""
    run, mu = crowd.run(lam, B, n, arrivals), crowd.mu(B, n)
    said = (
        f"{crowd.model.name} on an {crowd.card.name} finishes {mu:.1f} answers a second at "
        f"B = {B}. {PEOPLE} people wait {_brief(run.wait.mean())} on average, the last "
        f"{_brief(run.wait[-1])}"
    )
    if lam >= mu:
        return f"{said}: more come than leave, {lam - mu:.1f} a second."
    return f"{said}; independent ones, in the long run, {_brief(crowd.formula(lam, B, n).wait)}."


def draw(crowd: Crowd, lam: float, B: int, n: int, arrivals: str) -> Figure:
    """The line over time; below it each person's wait, and the wait over the load."""
    fig, axes = plots.figure(2, 2, height=6.0, height_ratios=[1.15, 1])
    grid = axes[0, 0].get_gridspec()
    for ax in axes[0]:
        ax.remove()
    run, rho = crowd.run(lam, B, n, arrivals), lam / crowd.mu(B, n)
    _draw_line(fig.add_subplot(grid[0, :]), run, rho)
    _draw_people(axes[1, 0], run)
    _draw_edge(axes[1, 1], crowd, lam, B, n, run)
    return fig


def _draw_line(ax: Axes, run: Run, rho: float) -> None:
    """People in service and in line, over time."""
    end = float(run.arrival[-1])
    times = np.linspace(0, end, 300)
    served, waiting = run.served_at(times), run.waiting_at(times)
    color = plots.COLORS["waiting"]
    plots.mark(
        ax.fill_between(times, served, color=plots.COLORS["decode"], lw=0, label="served"), "B"
    )
    line = ax.fill_between(times, served, served + waiting, color=color, lw=0, label="in line")
    plots.mark(line, "rho", "lam")
    ax.set(xlim=(0, end), ylim=(0, 1.15 * float((served + waiting).max())))
    title = f"Load {rho:.2f}: " + (
        "the line grows as long as people come" if rho >= 1 else "the line comes and goes"
    )
    plots.label(ax, x="seconds", y="people", title=title)
    ax.legend(frameon=False, ncols=2, loc="upper left")


def _draw_people(ax: Axes, run: Run) -> None:
    """Each person's wait, in order of arrival."""
    who = np.arange(1, len(run.wait) + 1)
    dots = ax.scatter(who, run.wait, s=5, color=plots.ORANGE, rasterized=True)
    plots.mark(dots, "lam", "n")
    mean = float(run.wait.mean())
    ax.axhline(mean, color=plots.INK, lw=1.4, ls="--")
    ax.set_ylim(0, max(1.1 * float(run.wait.max()), 0.1))
    plots.label(ax, x="person", y="seconds in line", title=f"In line: {_brief(mean)} on average")


def _draw_edge(ax: Axes, crowd: Crowd, lam: float, B: int, n: int, seen: Run) -> None:
    """Mean time over arrivals, by the formula: its wall at mu, and where these people stand."""
    mu = crowd.mu(B, n)
    rates = np.linspace(0.02, 0.99, 80) * mu
    steps = [crowd.step_time(k, n) for k in range(1, B + 1)]
    queues = [slots(float(x), lambda k: k / (n * steps[k - 1]), B) for x in rates]
    served = np.array([q.response - q.wait for q in queues])
    total = np.array([q.response for q in queues])
    color = plots.COLORS["waiting"]
    own = ax.fill_between(rates, served, color=plots.COLORS["decode"], lw=0, label="answered")
    line = ax.fill_between(rates, served, total, color=color, lw=0, label="in line")
    plots.mark(own, "B", "n", "t")
    plots.mark(line, "rho")
    wall = ax.axvline(mu, color=plots.COLORS["limit"], ls="--", lw=1.6)
    plots.mark(wall, "B", "n", "t")
    top = 3.5 * float(served[-1])
    mean = float(seen.response.mean())
    plots.mark(plots.measured(ax, [lam], [min(mean, 0.9 * top)], label="these people"), "lam")
    if mean > 0.9 * top:
        ax.annotate(f"↑ {_brief(mean)} ", (lam, 0.9 * top), ha="right", va="center", fontsize=9)
    ax.set(xlim=(0, max(1.2 * mu, 1.05 * lam)), ylim=(0, top))
    ax.text(mu, 0.4 * top, " λ = μ", color=plots.COLORS["limit"], va="center")
    title = f"The wall: {mu:.1f} a second"
    plots.label(ax, x="arrivals λ (per s)", y="mean seconds", title=title)
    ax.legend(frameon=False, loc="upper left", fontsize=9)


def _brief(seconds: float) -> str:
    if seconds < 0.0005:
        return "0 s"
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def knobs(**changes: Any) -> dict[str, Any]:
    """The experiment's settings at the start, with changes; for tests and text."""
    return {"lam": 3.0, "B": 8, "n": 256, "arrivals": "poisson", **changes}
