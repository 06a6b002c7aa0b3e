"""Experiment: one knob, two ends. The batch is turned, and two people look at what happens."""
# ruff: noqa: N803, N806 - names are the course's symbols

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minillm_serve.course import controls, plots
from minillm_serve.course.chapter09.server import ROUND, SERVERS, TEXTBOOK, Server
from minillm_serve.course.experiment import Experiment
from minillm_serve.course.predict import Predict

MOST = 256
#: Seconds a token that people put up with, by the texts behind this course.
PROMISES = {"voice": 0.030, "chat": 0.100}


def experiment() -> Experiment:
    """The experiment, ready for the last line of a cell."""
    start = knobs()
    return Experiment(
        draw,
        {
            "B": controls.integer("batch B", 1, MOST, start["B"], unit="sequences"),
            "L": controls.powers_of_two("context L", 128, 8192, start["L"], unit="tokens"),
            "server": controls.choice("server", list(SERVERS), start["server"]),
        },
        title="One knob, two ends",
        describe=describe,
        predict=_question(),
    )


def _question() -> Predict:
    """Twice the batch of the example."""
    B, L = 64, 1024
    now, then = TEXTBOOK.throughput(B, L), TEXTBOOK.throughput(2 * B, L)
    slower = TEXTBOOK.seconds(2 * B, L) / TEXTBOOK.seconds(B, L)
    return Predict(
        f"At B = {B} the server with the round numbers gives {now:,.0f} tokens a second. You "
        f"double the batch, to {2 * B}. How many does it give then?",
        answer=then,
        unit="tokens/s",
        within=0.05,
        explain=f"{then / now - 1:.0%} more, and each user waits {slower - 1:.0%} longer for every "
        f"token. Most of the step was the KV cache already, and that is twice as much now. (The "
        f"ceiling is {TEXTBOOK.ceiling(L):,.0f}.)",
    )


def describe(B: int, L: int, server: str) -> str:
    """What the picture shows, in words."""
    chosen = SERVERS[server]
    t, share = chosen.seconds(B, L), chosen.throughput(B, L) / chosen.ceiling(L)
    kept = [name for name, promise in PROMISES.items() if t <= promise]
    fit = f"fast enough for {' and '.join(kept)}" if kept else "too slow for chat"
    bound = "moving bytes" if t == chosen.memory_seconds(B, L) else "arithmetic"
    return (
        f"{B} at once, {L:,} tokens each: a token takes {1e3 * t:.1f} ms "
        f"({t / chosen.seconds(1, L):.1f} times as long as alone; {fit}), and the server gives "
        f"{chosen.throughput(B, L):,.0f} tokens/s, {share:.0%} of its ceiling. The step waits for "
        f"{bound}."
    )


def draw(B: int, L: int, server: str) -> Figure:
    """What a user waits for a token, and what the server gives, over the batch."""
    chosen = SERVERS[server]
    fig, (wait, give) = plots.figure(1, 2, height=4.3)
    _draw_wait(wait, chosen, B, L)
    _draw_throughput(give, chosen, B, L)
    for ax in (wait, give):
        ax.axvline(B, color=plots.INK, lw=1.2, ls=":")
        ax.set(xlim=(-5, MOST + 4))
        ax.title.set_fontsize(11.5)
    return fig


def _draw_wait(ax: Axes, server: Server, B: int, L: int) -> None:
    batches = range(1, MOST + 1)
    times = [1e3 * server.seconds(b, L) for b in batches]
    ax.plot(batches, times, color=plots.COLORS["decode"])
    top = 1.12 * max(times[-1], 40)
    for name, promise in PROMISES.items():
        if 1e3 * promise < top:
            ax.axhline(1e3 * promise, color=plots.COLORS["limit"], lw=1.3, ls="--")
            ax.text(
                0, 1e3 * promise, f"{name}: {1e3 * promise:.0f} ms", ha="left", va="bottom",
                color=plots.COLORS["limit"], fontsize=9.5,
            )  # fmt: skip
    now = 1e3 * server.seconds(B, L)
    ax.plot([B], [now], "D", ms=9, mec="white", color=plots.INK, zorder=5)
    ax.set_ylim(0, top)
    title = f"One user: {now:.1f} ms a token"
    plots.label(ax, x="batch B", y="ms a token (TPOT)", title=title)


def _draw_throughput(ax: Axes, server: Server, B: int, L: int) -> None:
    batches = range(1, MOST + 1)
    ax.plot(batches, [server.throughput(b, L) for b in batches], color=plots.COLORS["model"])
    roofs = {"bandwidth": server.memory_roof(L), "arithmetic": server.compute_roof(L)}
    lowest = min(roofs, key=lambda name: roofs[name])
    top = 1.15 * roofs[lowest]
    role = plots.COLORS["limit"]
    ax.axhline(roofs[lowest], color=role, lw=1.3, ls="--")
    ax.text(
        MOST, roofs[lowest], f"ceiling by {lowest}: {roofs[lowest]:,.0f}", ha="right", va="bottom",
        color=role, fontsize=9.5,
    )  # fmt: skip
    now = server.throughput(B, L)
    ax.plot([B], [now], "D", ms=9, mec="white", color=plots.INK, zorder=5)
    ax.set_ylim(0, top)
    title = f"All users: {now:,.0f} tokens/s"
    plots.label(ax, x="batch B", y="tokens a second", title=title)


def knobs(**changes: Any) -> dict[str, Any]:
    """The experiment's settings at the start, with changes; for tests and text."""
    return {"B": 64, "L": 1024, "server": ROUND, **changes}
