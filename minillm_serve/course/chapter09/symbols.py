"""Experiment: which symbol moves which part of the plot."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter09.server import Server
from minillm_serve.course.formula import Symbol
from minillm_serve.course.linked import FormulaExperiment
from minillm_serve.course.predict import Predict
from minillm_serve.sim import GiB, KiB, format_bytes

MOST = 160
PARTS = ["the floor W / BW", "the ceiling BW / (L kv)", "the slope on the left"]


def experiment() -> FormulaExperiment:
    """The experiment, ready for the last line of a cell."""
    start = knobs()
    return FormulaExperiment(
        draw,
        {
            "W": controls.integer("weights W", 2, 64, start["W"], unit="GiB"),
            "B": controls.integer("batch B", 1, MOST, start["B"], unit="sequences"),
            "L": controls.powers_of_two("context L", 256, 4096, start["L"], unit="tokens"),
            "kv": controls.powers_of_two("KV cache kv", 64, 1024, start["kv"], unit="KiB/token"),
            "BW": controls.integer("bandwidth BW", 250, 5000, start["BW"], step=250, unit="GiB/s"),
        },
        title="Which symbol moves which part",
        formula=r"t = \frac{W + B \cdot L \cdot \mathrm{kv}}{\mathrm{BW}} \qquad "
        r"\text{throughput} = \frac{B}{t}",
        symbols={
            "t": Symbol("t", "time of a step, and of a token", "What every user waits"),
            "W": Symbol("W", "bytes of the weights", "Read once a step, for all"),
            "B": Symbol("B", "sequences at once", "The knob"),
            "L": Symbol("L", "tokens of each sequence", "Slope on the left, ceiling on the right"),
            "kv": Symbol(r"\mathrm{kv}", "bytes of KV cache a token", "Always beside L"),
            "BW": Symbol(r"\mathrm{BW}", "bytes a second", "Scales everything, bends nothing"),
        },
        live=live,
        result=lambda **now: f"{of(**now).throughput(now['B'], now['L']):,.0f} tokens/s",
        describe=describe,
        predict=Predict(
            "You double the context L and touch nothing else. Which part of the picture stays "
            "exactly where it is?",
            answer=PARTS[0],
            choices=PARTS,
            explain="The floor is what a step takes for its weights, and in that there is no L. "
            "The slope doubles and the ceiling halves.",
        ),
    )


def of(W: int, B: int, L: int, kv: int, BW: int) -> Server:
    """The server that the controls describe; its arithmetic is left out."""
    return Server(weights=W * GiB, kv=kv * KiB, bandwidth=BW * GiB)


def live(**now: int) -> dict[str, str]:
    """Symbol -> its value with its unit."""
    t = of(**now).seconds(now["B"], now["L"])
    return {
        "t": f"{1e3 * t:.1f} ms",
        "W": f"{now['W']} GiB",
        "kv": format_bytes(now["kv"] * KiB),
        "BW": f"{now['BW']:,} GiB/s",
    }


def describe(W: int, B: int, L: int, kv: int, BW: int) -> str:
    """What the picture shows, in words."""
    server = of(W, B, L, kv, BW)
    floor, t = server.weights / server.bandwidth, server.seconds(B, L)
    return (
        f"A step takes {1e3 * t:.1f} ms: {1e3 * floor:.1f} for the weights and "
        f"{1e3 * (t - floor):.1f} for {B} KV caches. That leaves 1 - {1e3 * floor:.1f} / "
        f"{1e3 * t:.1f} = {1 - floor / t:.0%} of a ceiling of {server.ceiling(L):,.0f} tokens/s. "
        f"Half of it is reached at B = {server.half(L):.0f}."
    )


def draw(W: int, B: int, L: int, kv: int, BW: int) -> Figure:
    """The time of a step in its two parts, and the throughput below its ceiling."""
    server = of(W, B, L, kv, BW)
    fig, (time, give) = plots.figure(1, 2, height=4.4)
    _draw_time(time, server, B, L)
    _draw_throughput(give, server, B, L)
    for ax in (time, give):
        plots.mark(ax.axvline(B, color=plots.INK, lw=1.2, ls=":"), "B")
        ax.set(xlim=(-3, MOST))
        ax.title.set_fontsize(11.5)
    return fig


def _draw_time(ax: Axes, server: Server, B: int, L: int) -> None:
    batches = [0, *range(1, MOST + 1)]
    floor = 1e3 * server.weights / server.bandwidth
    times = [1e3 * server.memory_seconds(b, L) for b in batches]
    weights = ax.fill_between(batches, 0, floor, color=plots.COLORS["weights"], alpha=0.45, lw=0)
    plots.mark(weights, "W", "BW")
    caches = ax.fill_between(batches, floor, times, color=plots.COLORS["kv"], alpha=0.3, lw=0)
    plots.mark(caches, "L", "kv", "BW")
    (line,) = ax.plot(batches, times, color=plots.COLORS["decode"])
    plots.mark(line, "t", "L", "kv", "BW")
    (dot,) = ax.plot([B], [times[B]], "D", ms=9, mec="white", color=plots.INK, zorder=5)
    plots.mark(dot, "t", "B")
    wide = times[-1] > 1.5 * floor  # else the words stand above the wedge, not in it
    top = times[-1] * (1.08 if wide else 1.3)
    said = ax.text(
        0.97 * MOST, floor / 2, f"weights: W / BW = {floor:.3g} ms", ha="right", va="center",
        fontsize=9.5,
    )  # fmt: skip
    plots.mark(said, "W", "BW")
    slope = 1e6 * L * server.kv / server.bandwidth
    upper = floor + 0.3 * (times[-1] - floor) if wide else 1.14 * times[-1]
    said = ax.text(
        0.97 * MOST, upper, f"KV caches: L kv / BW\n= {slope:,.0f} µs a sequence", ha="right",
        va="center", fontsize=9.5,
    )  # fmt: skip
    plots.mark(said, "L", "kv", "BW")
    ax.set_ylim(0, top)
    plots.label(ax, x="batch B", y="ms", title=f"A step takes {times[B]:.1f} ms")


def _draw_throughput(ax: Axes, server: Server, B: int, L: int) -> None:
    batches = [0, *range(1, MOST + 1)]
    give = [server.throughput(b, L) if b else 0.0 for b in batches]
    (line,) = ax.plot(batches, give, color=plots.COLORS["model"])
    plots.mark(line, "t", "W", "L", "kv", "BW")
    (dot,) = ax.plot([B], [give[B]], "D", ms=9, mec="white", color=plots.INK, zorder=5)
    plots.mark(dot, "B", "t")
    roof, half = server.ceiling(L), server.half(L)
    role = plots.COLORS["limit"]
    plots.mark(ax.axhline(roof, color=role, lw=1.4, ls="--"), "L", "kv", "BW")
    said = ax.text(
        0.98 * MOST, 1.01 * roof, f"ceiling: BW / (L kv) = {roof:,.0f}", ha="right", va="bottom",
        color=role, fontsize=9.5,
    )  # fmt: skip
    plots.mark(said, "L", "kv", "BW")
    if half <= MOST:
        (point,) = ax.plot([half], [roof / 2], "o", ms=8, mfc="white", mec=role, mew=1.8, zorder=4)
        plots.mark(point, "W", "L", "kv")
        said = ax.text(
            half + 5, 0.96 * roof / 2, f"half: B = W / (L kv) = {half:.0f}", va="top", color=role,
            fontsize=9.5, bbox={"fc": "white", "ec": "none", "pad": 1},
        )  # fmt: skip
        plots.mark(said, "W", "L", "kv")
    ax.set_ylim(0, 1.15 * roof)
    title = f"{give[B]:,.0f} tokens/s, {give[B] / roof:.0%} of the ceiling"
    plots.label(ax, x="batch B", y="tokens a second", title=title)


def knobs(**changes: Any) -> dict[str, Any]:
    """The experiment's settings at the start, with changes; for tests and text."""
    return {"W": 14, "B": 64, "L": 1024, "kv": 512, "BW": 2000, **changes}
