"""A run under load in four panels: latencies as they are spread, and what happened when."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.load.answers import Answer
from minillm_serve.course import plots
from minillm_serve.sim.metrics import SLO


def draw(answers: Sequence[Answer], found: dict[str, Any], slo: SLO) -> Figure:
    """Draws one run.

    Args:
        answers: of all requests, one served at least.
        found: of `summarise`.
        slo: what was promised.
    """
    served = [answer for answer in answers if answer.is_served]
    logs = [answer.token_log() for answer in served]
    figure, ((first, second), (rate, crowd)) = plots.figure(2, 2, height=6.6)
    _cumulative(first, [log.ttft for log in logs], slo.ttft)
    title = f"TTFT: p99 {found['ttft']['p99']:.2f} s"
    plots.label(first, x="time to first token (s)", y="requests (%)", title=title)
    _cumulative(second, [1e3 * log.tpot for log in logs if log.tpot is not None], 1e3 * slo.tpot)
    title = "TPOT" if found["tpot"] is None else f"TPOT: p99 {1e3 * found['tpot']['p99']:.0f} ms"
    plots.label(second, x="time per output token (ms)", y="requests (%)", title=title)
    began = min(answer.due for answer in answers)
    times = np.concatenate([log.times for log in logs]) - began
    width = max(times.max() / 60, 1e-3)
    counts, edges = np.histogram(times, bins=np.arange(0, times.max() + 2 * width, width))
    rate.stairs(counts / width, edges, color=plots.COLORS["ours"], lw=1.8)
    rate.set_ylim(bottom=0)
    title = f"{found['output_tok_s']:.0f} output tok/s"
    plots.label(rate, x="time (s)", y="output tok/s", title=title)
    _in_flight(crowd, served, began)
    away = [a.due - began for a in answers if not a.is_served]
    if away:
        crowd.plot(
            away, np.zeros(len(away)), "|", color=plots.COLORS["rejected"], ms=9, mew=1.2,
            label=f"refused or failed: {len(away)}", clip_on=False,
        )  # fmt: skip
    title = f"{len(served)} of {len(answers)} served"
    plots.label(crowd, x="time (s)", y="requests under way", title=title)
    return figure


def _cumulative(axes: Axes, values: Sequence[float], limit: float) -> None:
    if values:
        shares = 100 * np.arange(1, len(values) + 1) / len(values)
        axes.plot(np.sort(values), shares, color=plots.COLORS["ours"], drawstyle="steps-post")
    if limit < float("inf"):
        axes.axvline(limit, color=plots.COLORS["limit"], ls="--", lw=1.6, label="promised")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 103)


def _in_flight(axes: Axes, served: Sequence[Answer], began: float) -> None:
    """How many have come and are not done yet, over time."""
    come = [answer.due - began for answer in served]
    gone = [answer.pieces[-1] - began for answer in served]
    moments = np.concatenate([come, gone])
    changes = np.concatenate([np.ones(len(come)), -np.ones(len(gone))])
    order = np.argsort(moments, kind="stable")
    crowd = np.cumsum(changes[order])
    axes.step(moments[order], crowd, where="post", color=plots.COLORS["useful"], lw=1.8)
    axes.set_ylim(bottom=0)
