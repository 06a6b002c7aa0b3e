"""Many runs at a time: the gain over the spread of lengths, and waiting over the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from minillm_serve.course import plots
from minillm_serve.course.chapter04 import schedules, theory
from minillm_serve.sim.cost import Work

PROMPT = 256  # tokens
LOOKS = {"static": plots.VERMILLION, "dynamic": plots.ORANGE, "continuous": plots.BLUE}


@dataclass(frozen=True, slots=True)
class Gain:
    """How much better continuous did than static, for one spread of lengths.

    Attributes:
        cv: the spread.
        steps: steps of static over steps of continuous.
        throughput: tokens a second of continuous over those of static.
        theory: what the steps would be while the queue never empties.
    """

    cv: float
    steps: float
    throughput: float
    theory: float


def gains(
    spreads: Sequence[float], batch: int, mean: int, people: int, most: int | None = None
) -> list[Gain]:
    """The same people, all there at once, through both schedulers, for every spread.

    Args:
        spreads: standard deviations of an answer's tokens over their mean.
        batch: slots (B).
        mean: tokens of an answer.
        people: how many.
        most: tokens after which an answer is cut, as by `max_tokens`.
    """
    found = []
    for cv in spreads:
        answers = theory.spread(mean, cv, most)
        people_now = schedules.crowd(people, 0.0, answers)
        static, continuous = (
            schedules.run(kind, people_now, batch)[0] for kind in ("static", "continuous")
        )
        found.append(
            Gain(
                cv,
                len(static.record) / len(continuous.record),
                continuous.throughput / static.throughput,
                theory.gain(answers, batch),
            )
        )
    return found


def draw_gains(found: Mapping[int, Sequence[Gain]], mean: int, most: int | None = None) -> Figure:
    """A curve a batch from theory, its points from the schedulers."""
    fig, ax = plots.figure(height=4.3)
    widest = max(gain.cv for one in found.values() for gain in one)
    smooth = np.linspace(0, widest, 41).tolist()
    for (batch, one), color in zip(found.items(), plots.CYCLE, strict=False):
        curve = [theory.gain(theory.spread(mean, cv, most), batch) for cv in smooth]
        ax.plot(smooth, curve, color=color, label=f"B = {batch}: E[longest] / mean")
        spreads = [gain.cv for gain in one]
        plots.measured(ax, spreads, [gain.steps for gain in one], label="", color=color)
        faster = [gain.throughput for gain in one]
        ax.plot(spreads, faster, "o", mfc="none", mew=1.6, color=color, ms=11)
    plots.measured(ax, [], [], label="steps, from the schedulers' records")
    ax.plot([], [], "o", mfc="none", mew=1.6, color=plots.INK, ms=11, label="tokens/s, simulated")
    best = max(gain.steps for one in found.values() for gain in one)
    title = f"Equal answers gain nothing; a spread of {widest:g} gains up to {best:.1f} times"
    x = "spread of answers (standard deviation / mean)"
    plots.label(ax, x=x, y="continuous over static", title=title)
    return fig


@dataclass(frozen=True, slots=True)
class Load:
    """What people feel at one rate of arrivals, in seconds.

    Attributes:
        rate: people a second.
        latency: mean time from arrival to the last token.
        first: mean time from arrival to the first token.
        per_token: mean time between two tokens of an answer.
        used: share of the slots at work, over time.
        throughput: tokens a second.
    """

    rate: float
    latency: float
    first: float
    per_token: float
    used: float
    throughput: float


def load(
    scheduler: str, rate: float, batch: int, mean: float, cv: float, *, people: int = 300
) -> Load:
    """People who come at a rate, independently of each other, and one scheduler."""
    crowd = schedules.crowd(people, 1 / rate, theory.spread(mean, cv), prompt=PROMPT)
    made, outcome = schedules.run(scheduler, crowd, batch)
    return Load(
        rate,
        float(outcome.latency.mean()),
        float(outcome.ttft.mean()),
        float(np.nanmean(outcome.tpot)),
        made.busy_share,
        made.throughput,
    )


def ceiling(scheduler: str, batch: int, mean: float, cv: float) -> float:
    """People a second that full batches serve at most: slots over the time that each is taken.

    A decode step is priced at half the mean answer; prompts' own steps are left out.
    """
    lengths = theory.spread(mean, cv)
    taken = (
        theory.mean_length(lengths)
        if scheduler == "continuous"
        else theory.expected_longest(lengths, batch)
    )
    step = schedules.card().seconds(Work.decode(batch, round(PROMPT + mean / 2)))
    return batch / (taken * step)


def draw_loads(found: Mapping[str, Sequence[Load]], ceilings: Mapping[str, float]) -> Figure:
    """Time to the whole answer, and to the first token, over the rate of arrivals."""
    fig, axes = plots.figure(1, 2, height=4.3, sharex=True)
    for ax, what in zip(axes, ("latency", "first"), strict=True):
        for kind, one in found.items():
            seconds = [getattr(load, what) for load in one]
            ax.plot([load.rate for load in one], seconds, "o-", ms=4, color=LOOKS[kind], label=kind)
        for kind, most in ceilings.items():
            ax.axvline(most, color=LOOKS[kind], ls=":", lw=1.4)
            ax.text(0.97 * most, 0.98, f"{most:.1f}", color=LOOKS[kind], ha="right", va="top",
                    fontsize=9, transform=ax.get_xaxis_transform())  # fmt: skip
        ax.set_xscale("log")
        ax.set_yscale("log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    x = "people a second (log)"
    y = "mean seconds after arrival (log)"
    plots.label(axes[0], x=x, y=y, title=f"Last token: {_lead(found, 'latency')}")
    plots.label(axes[1], x=x, title=f"First token: {_lead(found, 'first')}")
    axes[1].get_legend().remove()
    return fig


def _lead(found: Mapping[str, Sequence[Load]], what: str) -> str:
    """By how much continuous is ahead of the better one of the others, over all rates."""
    others = [
        [getattr(load, what) for load in one] for k, one in found.items() if k != "continuous"
    ]
    best = np.min(others, axis=0)
    ahead = best / [getattr(load, what) for load in found["continuous"]]
    return f"{ahead.min():.1f} to {ahead.max():.0f} times sooner"
