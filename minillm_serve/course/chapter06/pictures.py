"""Pictures of chapter 06 that are no experiments."""
# ruff: noqa: N803 - arguments have the names of the course's symbols

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from matplotlib.figure import Figure

from minillm_serve.core import PREFIX_CACHES, Namespace
from minillm_serve.course import plots
from minillm_serve.course.chapter06 import tree
from minillm_serve.course.chapter06.real import Crowd
from minillm_serve.course.chapter06.world import Moment, Tokens, Watched


def draw_ttft(crowds: Mapping[str, Crowd]) -> Figure:
    """A row of bars a cache: how long each of the crowd waits for a first token."""
    fig, axes = plots.figure(1, len(crowds), height=3.1, sharey=True)
    for ax, (name, crowd) in zip(axes, crowds.items(), strict=True):
        people = range(1, len(crowd.ttft) + 1)
        ax.bar(people, crowd.ttft, color=plots.COLORS["prefill"])
        ax.set_xticks(range(1, len(crowd.ttft) + 1, 2))
        ax.grid(axis="x", visible=False)
        plots.label(ax, x="reader", title=f"{name}: the last waits {max(crowd.ttft):.2f} s")
        ax.set_title(ax.get_title(loc="left"), loc="left", fontsize=10.5, fontweight="bold")
    axes[0].set_ylabel("TTFT (s)")
    return fig


def draw_split(before: Sequence[Tokens], after: Sequence[Tokens], P: int) -> Figure:
    """A radix tree, and the same tree when more sequences have been published."""
    fig, axes = plots.figure(1, 2, height=2.7)
    cache, free = Watched(PREFIX_CACHES["radix"](P), P), count()
    for ax, sequences in ((axes[0], before), (axes[1], after)):
        for tokens in sequences:
            table = cache.match(tokens, Namespace())
            table += [next(free) for _ in range(len(tokens) // P - len(table))]
            cache.publish(tokens, table, len(tokens), Namespace())
        columns = max(len(tokens) // P for tokens in (*before, *after))
        moment = _still(cache)
        tree.draw(ax, moment, P, outlined=True, size=(3, columns))
        ax.get_legend().remove()
        plots.label(ax, title=_count(moment, P))
    return fig


def _still(cache: Watched) -> Moment:
    """An index that nobody uses, as a moment."""
    return Moment((), 0, dict(cache.prefixes), (), (), 0, 0, 0, 0)


def _count(moment: Moment, P: int) -> str:
    runs = sum(1 for _ in tree.runs(tree.grow(moment, P)))
    return f"{len(moment.prefixes)} blocks, in {runs} node{'s' if runs > 1 else ''}"


def draw_gain(points: Mapping[float, float], without: float) -> Figure:
    """Time over the share of tokens that are found, with the line on which nothing else counts.

    Args:
        points: hit rate -> seconds with a cache.
        without: seconds without one.
    """
    fig, ax = plots.figure(height=3.6)
    ax.plot([0, 100], [1, 0], color=plots.COLORS["model"], label="1 - hit rate")
    ax.axhline(1, color=plots.COLORS["baseline"], ls="--", lw=1.4)
    ax.text(100, 1.02, "without a cache", color=plots.COLORS["baseline"], ha="right", fontsize=9)
    rates = [100 * rate for rate in points]
    plots.measured(ax, rates, [seconds / without for seconds in points.values()])
    ax.set(xlim=(-3, 103), ylim=(0, 1.3))
    most = min(points.values())
    title = f"At best {without / most:.1f} times as fast, and nothing is gained for nothing found"
    plots.label(ax, x="prompt tokens found (%)", y="time / time without a cache", title=title)
    ax.legend(loc="lower left")
    return fig


def draw_reads(B: int, L: int, shares: Sequence[float], kv: int) -> Figure:
    """Bytes of KV that a decode step reads, with and without reading what is shared once.

    Args:
        B: sequences.
        L: tokens of each.
        shares: of these, the same in all; 0 to 1.
        kv: bytes per token.
    """
    fig, ax = plots.figure(height=3.3)
    percent = [100 * share for share in shares]
    ax.plot(percent, [B * L * kv] * len(shares), color=plots.COLORS["baseline"], label="each alone")
    once = [(share * L + B * (1 - share) * L) * kv for share in shares]
    ax.plot(percent, once, color=plots.COLORS["shared"], label="what is shared once: cascade")
    plots.bytes_axis(ax.yaxis)
    ax.set_ylim(0, None)
    most = B * L * kv / once[-1]
    title = f"{B} sequences of {L:,} tokens: up to {most:.0f} times fewer bytes"
    plots.label(ax, x="share of the context that is the same (%)", y="read per step", title=title)
    return fig
