"""How the memory ledger is drawn: bars of bytes, rows of sequences, and the memory's slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, PathPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from minillm_serve.course import plots
from minillm_serve.course.chapter02.memory import Span
from minillm_serve.course.chapter02.traffic import LONGEST, SIZE, Holder, Moment

#: Slots in a row of the drawn memory.
COLUMNS = 64
#: Most arrows of a block table that are drawn.
ARROWS = 12
#: State -> colour and name; in the ledger's order.
STATES = {
    "useful": (plots.COLORS["useful"], "holds a token"),
    "reserved": (plots.COLORS["reserved"], "reserved, will hold one"),
    "internal": (plots.COLORS["wasted"], "never filled"),
    "external": ("#F3C9B0", "free, but in pieces"),
    "free": (plots.COLORS["free"], "free"),
}
#: State of a held slot -> the symbol that governs it.
SYMBOL = {"useful": "L", "reserved": "P", "internal": "P"}


def draw_ledgers(ax: Axes, moments: Mapping[str, Moment], policy: str, kv: int) -> None:
    """A bar a policy: the same people, the same memory, the same moment."""
    lefts = np.zeros(len(moments))
    for index, (color, name) in enumerate(STATES.values()):
        widths = np.array([m.ledger.amounts()[index] * kv for m in moments.values()], dtype=float)
        bars = ax.barh(list(moments), widths, left=lefts, color=color, label=name, height=0.72)
        if index < 3:
            plots.mark(bars, list(SYMBOL.values())[index], "kv")
        lefts += widths
    chosen = list(moments).index(policy)
    ax.barh(chosen, SIZE * kv, color="none", edgecolor=plots.INK, lw=1.8, height=0.84)
    for y, moment in enumerate(moments.values()):
        share = moment.ledger.useful / SIZE
        said = f" {moment.running} at once, {share:.0%} useful"
        plots.mark(ax.text(SIZE * kv, y, said, va="center", fontsize=10), "B")
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.set_xlim(0, 1.28 * SIZE * kv)
    ax.spines["bottom"].set_bounds(0, SIZE * kv)
    plots.bytes_axis(ax.xaxis)
    ax.set_xticks([tick for tick in ax.get_xticks() if tick <= SIZE * kv])
    best = moments[policy]
    plots.label(ax, title=f"{best.running} sequences at once when each gets {_gets(policy)}")
    ax.legend(
        ncols=5, loc="upper left", bbox_to_anchor=(-0.02, -0.2), frameon=False,
        fontsize=9, columnspacing=1.2, handlelength=1.1,
    )  # fmt: skip


def _gets(policy: str) -> str:
    return "blocks by need" if policy == "paged" else policy


def states_of(holder: Holder) -> dict[str, list[Span]]:
    """What a sequence holds, cut by state; in the order of its tokens."""
    amounts = (holder.stored, holder.reserved, holder.wasted)
    found: dict[str, list[Span]] = {}
    spans = list(holder.spans)
    for state, amount in zip(SYMBOL, amounts, strict=True):
        found[state] = []
        while amount:
            head = spans.pop(0)
            taken = min(amount, head.length)
            found[state].append(Span(head.start, taken))
            amount -= taken
            if taken < head.length:
                spans.insert(0, Span(head.start + taken, head.length - taken))
    return found


def draw_sequences(
    ax: Axes, holders: tuple[Holder, ...], place: int, block_size: int | None
) -> None:
    """A row a sequence: its tokens, and what else it holds."""
    for y, holder in enumerate(holders):
        name = f"seq{y + 1}"
        left = 0
        amounts = (holder.stored, holder.reserved, holder.wasted)
        for state, amount in zip(SYMBOL, amounts, strict=True):
            bar = ax.barh(y, amount, left=left, height=0.8, color=STATES[state][0])
            plots.mark(bar, SYMBOL[state], name)
            left += amount
        cuts = [] if block_size is None or block_size < 8 else range(block_size, left, block_size)
        ax.vlines(list(cuts), y - 0.4, y + 0.4, color="white", lw=0.7)
        weight = "bold" if y == place else "normal"
        label = ax.text(-6, y, holder.name, ha="right", va="center", fontsize=7.5, weight=weight)
        plots.mark(label, "B", name)
    outline = sum(span.length for span in holders[place].spans)
    ax.barh(place, outline, height=0.92, color="none", edgecolor=plots.INK, lw=1.8)
    for patch in ax.patches:  # all inside: the layout need not measure them
        patch.set_in_layout(False)
    ax.set(xlim=(-34, LONGEST + 4), ylim=(len(holders) - 0.3, -0.7), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.grid(axis="y", visible=False)
    plots.label(ax, x="slots held, in the order of its tokens", title="Sequences: click one")


def draw_memory(ax: Axes, holders: tuple[Holder, ...], place: int) -> None:
    """All slots, address after address, `COLUMNS` in a row."""
    ax.add_patch(_patch([Span(0, SIZE)], plots.COLORS["free"], 0.0))
    for y, holder in enumerate(holders):
        for state, spans in states_of(holder).items():
            if spans:
                patch = ax.add_patch(_patch(spans, STATES[state][0]))
                plots.mark(patch, SYMBOL[state], f"seq{y + 1}")
    for patch in ax.patches:
        patch.set_in_layout(False)
    chosen = _patch(holders[place].spans, "none", 0.0)
    chosen.set(edgecolor=plots.INK, lw=1.8)
    ax.add_patch(chosen)
    ax.set(xlim=(-0.6, COLUMNS + 0.6), ylim=(SIZE / COLUMNS + 0.6, -0.6), yticks=[])
    ax.set_xticks(range(0, COLUMNS + 1, 16))
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    plots.label(ax, x=f"slot of a row of {COLUMNS}", title="The memory")


def _patch(spans: Iterable[Span], color: str, gap: float = 0.18) -> PathPatch:
    """Stretches of the memory as one shape, each row of each stretch a box."""
    boxes = [box for span in spans for box in _boxes(span)]
    corners = [
        [(x + gap, y + gap), (x + w - gap, y + gap), (x + w - gap, y + 1 - gap),
         (x + gap, y + 1 - gap), (x + gap, y + gap)]
        for x, y, w in boxes
    ]  # fmt: skip
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
    path = Path(np.array(corners, dtype=float).reshape(-1, 2), codes)
    return PathPatch(path, facecolor=color, edgecolor="none", lw=0)


def _boxes(span: Span) -> list[tuple[float, float, float]]:
    """`(x, y, width)` of a stretch, a box a row that it crosses."""
    boxes = []
    for row in range(span.start // COLUMNS, (span.end - 1) // COLUMNS + 1):
        first, last = max(span.start, row * COLUMNS), min(span.end, (row + 1) * COLUMNS)
        boxes.append((float(first - row * COLUMNS), float(row), float(last - first)))
    return boxes


def draw_table(
    fig: Figure, rows: Axes, memory: Axes, holders: tuple[Holder, ...], place: int
) -> None:
    """The chosen sequence's block table as arrows: from its tokens to where they lie."""
    spans = holders[place].spans
    ends = list(accumulate(span.length for span in spans))
    every = -(-len(spans) // ARROWS)
    for index in range(0, len(spans), every):
        x, y, width = _boxes(spans[index])[0]
        middle = ends[index] - spans[index].length / 2
        arrow = ConnectionPatch(
            (middle, place), (x + width / 2, y + 0.5), "data", "data", axesA=rows, axesB=memory,
            arrowstyle="-|>", mutation_scale=9, color=plots.INK, lw=0.9, alpha=0.75, zorder=10,
        )  # fmt: skip
        arrow.set_in_layout(False)
        arrow.set_path_effects([withStroke(linewidth=2.6, foreground="white", alpha=0.6)])
        plots.mark(fig.add_artist(arrow), "P")
