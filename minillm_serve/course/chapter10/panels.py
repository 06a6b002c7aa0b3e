"""The dashboard's four panels, out of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.course.chapter10.recorder import Point


def draw(points: Sequence[Point], rate: float) -> Figure:
    """People, the two numbers, and the two times, over the last minute.

    A dotted line stands where the load changes; what it is from there on, below.

    Args:
        points: in order of time.
        rate: questions a second that are asked now.
    """
    fig, axes = plots.figure(2, 2, height=4.9, sharex=True)
    fig.set_layout_engine(None)  # everything has its place: it is drawn once a second
    fig.subplots_adjust(left=0.085, right=0.985, top=0.93, bottom=0.11, hspace=0.34, wspace=0.22)
    at = [point.at for point in points]
    spans = [point.span for point in points]
    people, numbers, ttft, tpot = axes.flat
    _draw_people(people, points, rate)
    _draw_shares(numbers, points)
    for ax, name, values in (
        (ttft, "TTFT", [span.ttft for span in spans]),
        (tpot, "TPOT", [span.tpot for span in spans]),
    ):
        known = [(x, 1e3 * y) for x, y in zip(at, values, strict=True) if y is not None]
        ax.plot(*(zip(*known, strict=True) if known else ([], [])), "o-", ms=3.5, lw=1.6)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])  # the rates stand above
        said = f"{name} {known[-1][1]:,.0f} ms" if known else f"{name}: nobody yet"
        plots.label(ax, x="time (s)", y="ms", title=said)
    for ax in axes.flat:
        ax.title.set_fontsize(11)
        if at:
            ax.set_xlim(at[0], max(at[-1], at[0] + 5.0))
    _mark_changes(list(axes.flat), points)
    return fig


def _mark_changes(axes: Sequence[Axes], points: Sequence[Point]) -> None:
    """A line in each panel; the rate in the lower two, as the upper ones have their legends."""
    for before, after in pairwise(points):
        if before.rate == after.rate:
            continue
        for ax in axes:
            ax.axvline(before.at, color=plots.GREY, lw=1.2, ls=":")
        for ax in axes[2:]:
            ax.text(
                before.at, 0.98, f" {after.rate:g}/s", transform=ax.get_xaxis_transform(),
                va="top", color=plots.INK, fontsize=9,
            )  # fmt: skip


def _draw_people(ax: Axes, points: Sequence[Point], rate: float) -> None:
    at = [point.at for point in points]
    running, waiting, refused = (
        [getattr(point.span, name) for point in points]
        for name in ("running", "waiting", "refused")
    )
    colors = (plots.COLORS["decode"], plots.COLORS["waiting"])
    ax.stackplot(at, running, waiting, colors=colors, labels=("running", "waiting"))
    some = [(x, y) for x, y in zip(at, refused, strict=True) if y]
    ax.plot(
        *(zip(*some, strict=True) if some else ([], [])),
        "x",
        color=plots.COLORS["limit"],
        ms=5,
        label="refused",
    )
    ax.set_ylim(bottom=0)
    last = points[-1].span if points else None
    said = f"{last.running} running, {last.waiting} waiting" if last else "nobody yet"
    said += f" (load {rate:g}/s)"
    plots.label(ax, y="sequences", title=said)
    ax.legend(loc="upper left", ncols=3, fontsize=8.5, frameon=False, columnspacing=1.0)
    top = max([r + w for r, w in zip(running, waiting, strict=True)] + refused + [4])
    ax.set_ylim(0, 1.3 * top)


def _draw_shares(ax: Axes, points: Sequence[Point]) -> None:
    at = [point.at for point in points]
    kv, busy = ([100 * getattr(p.span, name) for p in points] for name in ("kv_usage", "busy"))
    ax.plot(at, kv, color=plots.COLORS["kv"], label="KV usage")
    ax.plot(at, busy, color=plots.ORANGE, label="busy")
    ax.set_ylim(0, 128)
    ax.set_yticks([0, 50, 100])
    said = f"KV {kv[-1]:.0f}% used, {busy[-1]:.0f}% busy" if points else "nothing yet"
    plots.label(ax, y="%", title=said)
    ax.legend(loc="upper left", ncols=2, fontsize=8.5, frameon=False)


def describe(point: Point) -> str:
    """The newest column in words."""
    span = point.span
    return (
        f"{point.rate:g} questions a second are asked: {span.tokens_per_second:.0f} tokens a "
        f"second come out, {span.running} sequences run, {span.waiting} wait, and "
        f"{span.refused} were refused since the last look."
    )
