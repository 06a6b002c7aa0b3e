"""How a prefix cache is drawn: a tree of blocks, and those who read along its branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from minillm_serve.course import plots
from minillm_serve.course.chapter06.world import Moment, Tokens

#: Kind of block -> its colour, and what is said about it.
KINDS = {
    "shared": (plots.COLORS["shared"], "in several tables"),
    "own": (plots.COLORS["kv"], "in one"),
    "writing": (plots.SKY, "in one, not indexed"),
    "cached": ("#C9CFD6", "in none: kept in case"),
    "evicted": ("white", "just evicted"),
}
#: Kind -> the symbol of the formula that governs it.
SYMBOL = {"shared": "S", "own": "L", "writing": "L"}
#: Kinds that the index does not name.
UNINDEXED = ("writing", "evicted")
#: Height of a box, the distance of two rows being 1; and its width, two blocks being 1 apart.
HIGH, WIDE = 0.66, 0.86


@dataclass(slots=True)
class Node:
    """A block of the tree; the root is none.

    Attributes:
        kind: a key of `KINDS`.
        block: its number; None if it has just been evicted.
        depth: how far to the right it is drawn; the root is at -1.
        children: what hangs on it.
        row: how far down.
        reader: whose last block it is, if anybody's.
    """

    kind: str
    block: int | None
    depth: int = -1
    children: list[Node] = field(default_factory=list)
    row: int = 0
    reader: str = ""

    def hang(self, kind: str, block: int | None) -> Node:
        """A new block behind this one."""
        child = Node(kind, block, self.depth + 1)
        self.children.append(child)
        return child

    def walk(self) -> Iterator[Node]:
        """Itself, and all behind it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def place(self, row: int = 0) -> int:
        """Gives itself and all behind it a row, from this one on; returns the last one used."""
        self.row = row
        for number, child in enumerate(self.children):
            row = child.place(row + min(1, number))
        return row


def grow(moment: Moment, block_size: int) -> Node:
    """The tree of a moment, every block in its place.

    Args:
        moment: of `world.chat`.
        block_size: tokens a block (P).
    """
    root = Node("root", None)
    nodes: dict[Tokens, Node] = {(): root}
    for prefix, kind, block in sorted(_indexed(moment), key=lambda one: len(one[0])):
        if prefix not in nodes:
            nodes[prefix] = nodes[prefix[: len(prefix) - block_size]].hang(kind, block)
    for one in moment.running:
        node = root
        for block in one.blocks:
            known = moment.prefixes.get(block)
            node = node.hang("writing", block) if known is None else nodes[known]
        node.reader = one.name
    root.place()
    return root


def _indexed(moment: Moment) -> Iterator[tuple[Tokens, str, int | None]]:
    """Of each block in the index its tokens, kind and number; then what was there until now."""
    named = moment.named
    for block, prefix in moment.prefixes.items():
        yield prefix, ("cached", "own", "shared")[min(2, named[block])], block
    for prefix in moment.evicted:
        yield prefix, "evicted", None


def draw(
    ax: Axes, moment: Moment, block_size: int, *, outlined: bool, size: tuple[int, int]
) -> None:
    """Draws the tree from left to right.

    Args:
        ax: where.
        moment: of `world.chat`.
        block_size: tokens a block (P).
        outlined: outline what a radix tree keeps as one node: blocks with no fork between them.
        size: least rows and columns to leave room for, so that the picture stands still.
    """
    root = grow(moment, block_size)
    nodes = [node for node in root.walk() if node is not root]
    _draw_links(ax, root)
    for node in nodes:
        _draw_node(ax, node, small=size[1] > 18)
    if outlined:
        _draw_runs(ax, root)
    _draw_next(ax, nodes, moment)
    rows, columns = max(size[0], *(node.row + 1 for node in root.walk())), size[1]
    ax.set(xlim=(-0.7, columns + 1.2), ylim=(rows - 0.35, -0.65))
    ax.axis("off")
    handles = [
        Patch(facecolor=color, edgecolor=_edge(kind), ls=_dash(kind), label=said)
        for kind, (color, said) in KINDS.items()
    ]
    gone = plots.COLORS["wasted"]
    handles.insert(
        -1, Patch(facecolor=KINDS["cached"][0], edgecolor=gone, lw=1.8, label="next to go")
    )
    for artist in (*ax.patches, *ax.lines, *ax.texts):  # all inside: no layout need measure them
        artist.set_in_layout(False)
    ax.legend(
        handles=handles, ncols=6, loc="upper center", bbox_to_anchor=(0.5, 0.0), fontsize=9,
        frameon=False, handlelength=1.2, columnspacing=1.4,
    )  # fmt: skip


def _edge(kind: str) -> str:
    return plots.COLORS["wasted"] if kind == "evicted" else "none"


def _dash(kind: str) -> str:
    return "--" if kind == "evicted" else "-"


def _draw_node(ax: Axes, node: Node, *, small: bool) -> None:
    color, _ = KINDS[node.kind]
    corner = node.depth - WIDE / 2, node.row - HIGH / 2
    box = Rectangle(
        corner, WIDE, HIGH, facecolor=color, edgecolor=_edge(node.kind), ls=_dash(node.kind), lw=1.2
    )
    ax.add_patch(box)
    if node.kind in SYMBOL:
        plots.mark(box, SYMBOL[node.kind], "P")
    if node.block is not None:
        ink = "white" if node.kind in ("shared", "own") else plots.INK
        number = f"{node.block}"
        ax.text(
            node.depth, node.row, number, ha="center", va="center", color=ink,
            fontsize=5.5 if small else 8,
        )  # fmt: skip
    if node.reader:
        said = f"user {node.reader}"
        reader = ax.text(node.depth + 0.55, node.row, said, va="center", fontsize=8.5)
        plots.mark(reader, "B")


def _draw_links(ax: Axes, node: Node) -> None:
    """Lines from each block to those behind it, down a gutter where the tree forks."""
    for child in node.children:
        if node.depth >= 0:
            x, y = node.depth + 0.5, (node.row, child.row)
            bends = [node.depth, x, x, child.depth], [y[0], y[0], y[1], y[1]]
            ax.plot(*bends, color=plots.GREY, lw=1.1, zorder=0)
        _draw_links(ax, child)


def runs(node: Node) -> Iterator[tuple[Node, Node]]:
    """First and last block of each stretch behind a node that is indexed and has no fork in it."""
    for first in node.children:
        if first.kind in UNINDEXED:
            continue
        last = first
        while len(last.children) == 1 and last.children[0].kind not in UNINDEXED:
            last = last.children[0]
        yield first, last
        yield from runs(last)


def _draw_runs(ax: Axes, root: Node) -> None:
    """An outline around what a radix tree keeps as one node."""
    high = HIGH + 0.16
    for first, last in runs(root):
        outline = FancyBboxPatch(
            (first.depth - WIDE / 2, first.row - high / 2), last.depth - first.depth + WIDE, high,
            boxstyle="round,pad=0.02,rounding_size=0.12", facecolor="none", edgecolor=plots.INK,
            lw=1.3,
        )  # fmt: skip
        ax.add_patch(outline)


def _draw_next(ax: Axes, nodes: list[Node], moment: Moment) -> None:
    """Frames the block that will be evicted first."""
    for node in nodes:
        if node.block in moment.next_to_go[:1]:
            corner = node.depth - WIDE / 2, node.row - HIGH / 2
            edge = plots.COLORS["wasted"]
            ax.add_patch(Rectangle(corner, WIDE, HIGH, facecolor="none", edgecolor=edge, lw=1.8))
