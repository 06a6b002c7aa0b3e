"""Chapter 09's still pictures: bytes of a step, both roofs, and what a promise costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.course.chapter09.knob import PROMISES
from minillm_serve.course.chapter09.server import SERVERS, Server
from minillm_serve.sim import GiB


def draw_bytes(server: Server, context: int, batches: Sequence[int] = (1, 4, 16, 64)) -> Figure:
    """What a step moves, and what of it each token has to pay for.

    Args:
        server: a model on a machine.
        context: tokens of each sequence (L).
        batches: sizes to show.
    """
    fig, (all_of_it, share) = plots.figure(1, 2, height=3.6)
    names = [f"B = {batch}" for batch in batches]
    weights = [server.weights / GiB] * len(batches)
    caches = [batch * context * server.kv / GiB for batch in batches]
    for ax, parts in (
        (all_of_it, (weights, caches)),
        (share, [[x / b for x, b in zip(p, batches, strict=True)] for p in (weights, caches)]),
    ):
        ax.bar(names, parts[0], color=plots.COLORS["weights"], label="weights")
        top = ax.bar(names, parts[1], bottom=parts[0], color=plots.COLORS["kv"], label="KV caches")
        totals = [a + b for a, b in zip(*parts, strict=True)]
        ax.bar_label(top, [f"{total:.3g}" for total in totals], padding=3, fontsize=9.5)
        ax.set_ylim(0, 1.13 * max(totals))
        ax.grid(axis="x", visible=False)
    plots.label(all_of_it, y="GiB", title="A step moves more and more ...")
    plots.label(share, y="GiB a token", title="... and each token's share shrinks")
    for ax in (all_of_it, share):
        ax.title.set_fontsize(11.5)
    all_of_it.legend(loc="upper left", frameon=False)
    share.get_legend().remove()
    return fig


def draw_roofs(
    names: Sequence[str], contexts: Sequence[int] = (128, 1024, 8192), most: int = 4096
) -> Figure:
    """Throughput under both roofs, for short and long contexts.

    Args:
        names: of `SERVERS`, a panel each.
        contexts: a curve for each (L).
        most: the largest batch.
    """
    fig, axes = plots.figure(1, len(names), height=4.1, sharey=True)
    batches = np.unique(np.geomspace(1, most, 60).astype(int))
    for ax, name in zip(axes, names, strict=True):
        server = SERVERS[name]
        for context, color in zip(contexts, (plots.SKY, plots.BLUE, plots.GREEN), strict=True):
            give = [server.throughput(int(b), context) for b in batches]
            ax.plot(batches, give, color=color, label=f"L = {context:,}")
            bound = [server.memory_seconds(int(b), context) for b in batches]
            free = [b / t for b, t in zip(batches, bound, strict=True)]
            ax.plot(batches, free, color=color, ls=":", lw=1.4)
        roof = server.compute_roof(0)
        ax.axhline(roof, color=plots.COLORS["compute"], lw=1.6, ls="--")
        ax.text(1, 1.08 * roof, " arithmetic, attention aside", color=plots.COLORS["compute"],
                fontsize=9.5, va="bottom")  # fmt: skip
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_ylim(50, 3 * roof)
        ax.set_xticks([1, 8, 64, 512, 4096], ["1", "8", "64", "512", "4,096"])
        ax.minorticks_off()
        title = f"{name.split(' on ')[0]}: roofs meet at L = {server.roofs_meet():,.0f}"
        plots.label(ax, x="batch B", title=title)
        ax.title.set_fontsize(11.5)
        ax.legend(loc="lower right", frameon=False)
    axes[0].set_ylabel("tokens a second")
    return fig


def draw_share(floor: float) -> Figure:
    """The share of the ceiling that a promise leaves: 1 - floor / t.

    Args:
        floor: seconds of a step without anybody [W / BW].
    """
    fig, ax = plots.figure(height=3.5)
    times = np.linspace(floor, 0.13, 300)
    ax.plot(1e3 * times, 100 * (1 - floor / times), color=plots.COLORS["model"])
    for name, promise in PROMISES.items():
        kept = 100 * (1 - floor / promise)
        ax.plot([1e3 * promise] * 2, [0, kept], color=plots.COLORS["limit"], lw=1.3, ls="--")
        ax.plot([1e3 * promise], [kept], "D", ms=8, mec="white", color=plots.INK, zorder=5)
        ax.text(1e3 * promise + 1.5, kept - 9, f"{name}: {kept:.0f} %", fontsize=10)
    ax.axvline(1e3 * floor, color=plots.GREY, lw=1.3, ls=":")
    ax.text(1e3 * floor + 0.8, 96, "floor W / BW: nobody can be promised less", fontsize=9.5,
            va="center", color="#52606D")  # fmt: skip
    ax.set(xlim=(0, 130), ylim=(0, 104))
    plots.label(ax, x="promised ms a token (TPOT)", y="% of the ceiling",
                title="The last milliseconds are the dear ones")  # fmt: skip
    return fig
