"""The widget *who reads what*: from a program's ids to the slots of the pool that it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minillm_serve.course import Experiment, Predict, controls, plots
from minillm_serve.course.chapter03.reads import Launch, Program, Tile, tiles
from minillm_serve.course.chapter03.stages import STAGES

LENGTHS = (9, 4, 14, 6)
HEADS, KV_HEADS, SPLITS, NUM_SLOTS = 6, 2, 2, 48
#: Order in which the pool hands blocks out; by chance, as after some hours of service.
_ORDER = (7, 2, 10, 4, 0, 9, 5, 11, 1, 8, 3, 6)
#: What can be looked at: a stage and, where it splits contexts, one of the pieces.
_SHOWN_STAGES = {
    **{f"{stage.title} (a program a {stage.per})": (stage.number, 0) for stage in STAGES[1:-1]},
    **{f"{STAGES[-1].title}, piece {n} of {SPLITS}": (STAGES[-1].number, n) for n in range(SPLITS)},
}
_OWNERS = (plots.SKY, plots.YELLOW, plots.PURPLE, plots.ORANGE)

Slot = tuple[int, int]


@dataclass(frozen=True)
class Scene:
    """One launch, and the program that is looked at.

    Attributes:
        launch: four sequences in a pool of `NUM_SLOTS` slots.
        program: the one that works for the chosen query head.
        has_mask: whether its loads have a mask.
    """

    launch: Launch
    program: Program
    has_mask: bool

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return NUM_SLOTS // self.launch.block_size

    def owner(self, slot: Slot) -> int | None:
        """The sequence whose token lies in a slot."""
        for sequence, table in enumerate(self.launch.tables):
            if slot[0] in table:
                position = table.index(slot[0]) * self.launch.block_size + slot[1]
                return sequence if position < self.launch.lengths[sequence] else None
        return None

    def tiles(self) -> list[Tile]:
        """What the program loads, turn by turn."""
        return tiles(self.launch, self.program)

    def lanes(self) -> tuple[dict[Slot, int], dict[Slot, int]]:
        """Slot -> turn of the loop: those that are read, and those that the mask holds back."""
        read: dict[Slot, int] = {}
        held: dict[Slot, int] = {}
        for turn, tile in enumerate(self.tiles(), 1):
            for slot, on in zip(tile.slots, tile.mask, strict=True):
                (read if on or not self.has_mask else held)[tile.block, slot] = turn
        return read, held

    def strays(self) -> list[Slot]:
        """Slots that are read and hold no token of this sequence."""
        return [slot for slot in self.lanes()[0] if self.owner(slot) != self.program[1]]

    def sharers(self) -> list[Program]:
        """All programs that read the same keys, this one included."""
        mine = {row for tile in self.tiles() for row in tile.read()}
        return [
            program
            for program in self.launch.programs()
            if mine & {row for tile in tiles(self.launch, program) for row in tile.read()}
        ]


def scene(stage: int, head: int, sequence: int, piece: int, size: int, mask: bool) -> Scene:
    """The widget's controls as a scene; `stage` is a number, `size` is P."""
    free = [block for block in _ORDER if block < NUM_SLOTS // size]
    free += [block for block in range(NUM_SLOTS // size) if block not in free]
    tables = []
    for length in LENGTHS:
        count = -(-length // size)
        tables.append(tuple(free[:count]))
        free = free[count:]
    launch = Launch(STAGES[stage - 1], LENGTHS, tuple(tables), size, HEADS, KV_HEADS, SPLITS)
    return Scene(launch, launch.program_of(head, sequence, piece), mask)


def draw(stage: tuple[int, int], head: int, sequence: int, size: int, mask: bool) -> Figure:
    """The grid of programs, the sequence's block table, and the pool."""
    number, piece = stage
    shown = scene(number, head, sequence, piece, size, mask)
    figure, axes = plots.figure(2, 1, height=5.6, height_ratios=(1, 1.6))
    _draw_grid(axes[0], shown)
    _draw_pool(axes[1], shown)
    return figure


def _draw_grid(ax: Axes, shown: Scene) -> None:
    """One square a program; the chosen one dark, those that read the same keys framed."""
    across, down, deep = shown.launch.grid
    sharers = set(shown.sharers())
    for x, y, z in shown.launch.programs():
        is_chosen = (x, y, z) == shown.program
        left, top = x * (deep + 0.4) + z, down - 1 - y
        face = plots.BLUE if is_chosen else "white" if (x, y, z) in sharers else plots.PALE
        edge = plots.BLUE if (x, y, z) in sharers else "none"
        ax.add_patch(Rectangle((left, top), 0.9, 0.85, facecolor=face, edgecolor=edge, lw=1.6))
        name = f"{x},{y},{z}" if deep > 1 else f"{x},{y}"
        ink = "white" if is_chosen else plots.INK
        ax.text(left + 0.45, top + 0.42, name, color=ink, fontsize=8, ha="center", va="center")
    for y in range(down):
        label = f"sequence {y}: {shown.launch.lengths[y]} tokens  "
        ax.text(-0.1, down - 1 - y + 0.42, label, ha="right", va="center", fontsize=9)
    ax.set_xlim(-2.9, 10.6)
    ax.set_ylim(-0.1, down)
    ax.set_axis_off()
    heads = shown.launch.query_heads(shown.program)
    first, last = heads[0], heads[-1]
    who = f"query head {first}" if len(heads) == 1 else f"query heads {first} to {last}"
    program = shown.program[: 2 + (deep > 1)]
    ax.set_title(f"{across * down * deep} programs. {program} works for {who}", loc="left")
    others = len(sharers) - 1
    if others:
        ax.text(10.6, down - 0.58, f"{others} others read\nthe same keys (framed)", ha="right",
                va="center", fontsize=9, color=plots.BLUE)  # fmt: skip


def _draw_pool(ax: Axes, shown: Scene) -> None:
    """A column a block, a square a slot of one KV head; numbers are turns of the loop."""
    size, (read, held) = shown.launch.block_size, shown.lanes()
    strays = set(shown.strays())
    for block in range(shown.num_blocks):
        for row in range(size):
            slot, at = (block, row), (block * 1.0, size - 1 - row)
            owner = shown.owner(slot)
            color = "white" if owner is None else _OWNERS[owner]
            style = {"facecolor": color, "edgecolor": plots.GREY, "lw": 0.5, "alpha": 0.45}
            mark, ink = "", plots.INK
            if slot in read:
                style = {"facecolor": plots.VERMILLION if slot in strays else plots.BLUE, "lw": 0}
                mark, ink = str(read[slot]) + ("!" if slot in strays else ""), "white"
            elif slot in held:
                style |= {"hatch": "////", "alpha": 0.8}
                mark = f"({held[slot]})"
            ax.add_patch(Rectangle(at, 0.9, 0.9, **style))  # type: ignore[arg-type]
            ax.text(
                at[0] + 0.45, at[1] + 0.45, mark, color=ink, ha="center", va="center", fontsize=8.5
            )
        ax.text(block + 0.45, size + 0.15, str(block), ha="center", fontsize=8.5, color=plots.GREY)
    for sequence, table in enumerate(shown.launch.tables):
        said = f"sequence {sequence}: blocks {', '.join(map(str, table))}"
        _legend(ax, said, facecolor=_OWNERS[sequence], alpha=0.45)
    _legend(ax, "read, in which turn", facecolor=plots.BLUE)
    if held:
        _legend(ax, "held back by the mask", facecolor="white", hatch="////", edgecolor=plots.GREY)
    if strays:
        _legend(ax, "! read, holds no token", facecolor=plots.VERMILLION)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, fontsize=8.5, frameon=False)
    ax.set_xlim(-0.2, shown.num_blocks)
    ax.set_ylim(-0.1, size + 0.9)
    ax.set_axis_off()
    ax.set_title(f"The pool, KV head {shown.tiles()[0].kv_head if shown.tiles() else 0}: "
                 f"{len(shown.tiles())} tiles of {size} lanes", loc="left")  # fmt: skip


def _legend(ax: Axes, said: str, **style: Any) -> None:
    ax.add_patch(Rectangle((0, 0), 0, 0, label=said, **style))


def describe(stage: tuple[int, int], head: int, sequence: int, size: int, mask: bool) -> str:
    """One or two sentences on the same."""
    number, piece = stage
    shown = scene(number, head, sequence, piece, size, mask)
    read, held = shown.lanes()
    blocks = ", ".join(str(tile.block) for tile in shown.tiles()) or "none"
    strays, others = len(shown.strays()), len(shown.sharers()) - 1
    tail = f"{strays} of them hold no token" if strays else f"the mask holds back {len(held)} lanes"
    too = "no other program reads" if others < 1 else f"{others} others read"
    return (
        f"Program {shown.program} reads {len(read)} slots in blocks {blocks}; {tail}; "
        f"{too} the same keys."
    )


def who_reads_what() -> Experiment:
    """The widget."""
    knobs = {
        "stage": controls.choice("stage", _SHOWN_STAGES, (3, 0)),
        "head": controls.integer("query head h", 0, HEADS - 1, 1),
        "sequence": controls.integer("sequence s", 0, len(LENGTHS) - 1, 0),
        "size": controls.powers_of_two("block size P", 2, 8, 4),
        "mask": controls.switch("loads have a mask", True),
    }
    return Experiment(
        draw,
        knobs,
        title="Who reads what",
        describe=describe,
        predict=Predict(
            "Sequence 0 has 9 tokens, in blocks of 4. How many lanes must the mask hold back?",
            3,
            unit="lanes",
            explain="A tile is a whole block. The last one holds 1 token and has 4 lanes.",
        ),
    )
