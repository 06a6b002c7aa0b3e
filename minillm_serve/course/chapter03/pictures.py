"""The chapter's pictures: the idea, and what each stage of the kernel gained."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from minillm_serve.course import plots
from minillm_serve.course.chapter03.machine import Machine, find, instructions_per_token
from minillm_serve.course.chapter03.reads import Launch, slots_needed, slots_read
from minillm_serve.course.chapter03.stages import STAGES

#: A launch for counting: lengths in blocks of 16, heads as in Llama-3-8B.
_LENGTHS = (48, 80)


def idea() -> Figure:
    """One program: block table -> block -> tile -> running state."""
    figure, ax = plots.figure(height=3.3)
    ax.set_axis_off()
    ax.set_xlim(0, 17)
    ax.set_ylim(-1.3, 5)
    table = (9, 3, 6)
    for row, block in enumerate(table):
        color = plots.ORANGE if row == 1 else plots.PALE
        _box(ax, 0.4, 3 - row, 1.3, 0.9, color, str(block))
    _words(ax, 1.05, 4.35, "block table\nof sequence s")
    for block in range(12):
        column, row = block % 4, block // 4
        mine = block in table
        color = plots.ORANGE if block == 3 else plots.SKY if mine else plots.PALE
        _box(ax, 3.6 + column * 1.1, 3 - row, 1.0, 0.9, color, str(block))
    _words(ax, 5.8, 4.35, "pool of blocks")
    for slot in range(4):
        for d in range(4):
            _box(ax, 9.8 + d * 0.62, 3.2 - slot * 0.75, 0.56, 0.68, plots.ORANGE)
    _words(ax, 11.0, 4.35, "tile of keys [P, D],\nthen one of values")
    state = (("m", "highest score"), (r"\ell", "sum of weights"), ("a", "values so\nweighted, [D]"))
    for row, (name, shape) in enumerate(state):
        _box(ax, 14.4, 3.1 - row, 0.9, 0.8, plots.GREEN, f"${name}$")
        ax.text(15.4, 3.5 - row, shape, va="center", fontsize=9)
    _words(ax, 15.4, 4.35, "state, in registers")
    arrows = (((1.8, 2.45), (3.5, 2.45)), ((8.0, 3.45), (9.6, 2.6)), ((12.4, 2.4), (14.2, 2.4)))
    for begin, end in arrows:
        arrow = FancyArrowPatch(begin, end, arrowstyle="->", mutation_scale=14, color=plots.INK)
        ax.add_patch(arrow)
    _words(ax, 2.65, 3.0, "look up")
    _words(ax, 8.85, 2.1, "load,\nwith a\nmask")
    _words(ax, 13.3, 2.85, "fold in")
    _words(ax, 8.3, -0.6, "... and again with the next block. Nothing is copied, nothing put back")
    return figure


def _box(
    ax: Axes, x: float, y: float, width: float, height: float, color: str, text: str = ""
) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="white"))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=10)


def _words(ax: Axes, x: float, y: float, text: str) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=9.5, color=plots.INK)


def times_the_floor(group: int = 4) -> dict[str, float]:
    """Stage -> key and value rows asked for, in multiples of those that there are.

    Args:
        group: query heads that share a KV head.
    """
    tables = ((0, 1, 2), (3, 4, 5, 6, 7))
    found = {}
    for stage in STAGES:
        launch = Launch(stage, _LENGTHS, tables, 16, 2 * group, 2, 2)
        found[stage.title] = slots_read(launch) / slots_needed(launch)
    return found


def growth(machines: Sequence[Machine], target: str = "sm_90") -> Figure:
    """Requests and instructions of each stage."""
    figure, (left, right) = plots.figure(1, 2, height=3.6)
    times = times_the_floor()
    bars = left.bar(range(len(times)), list(times.values()), color=plots.COLORS["kv"])
    left.bar_label(bars, fmt="%g×", padding=2)
    left.axhline(1, color=plots.COLORS["limit"], lw=1.5, label="each once: the floor")
    left.set_ylim(0, max(times.values()) * 1.15)
    plots.label(left, y="keys and values asked for", title="Asked for: from 6 times to once")
    counts = [instructions_per_token(find(machines, stage, target)) for stage in STAGES]
    bars = right.bar(range(len(counts)), counts, color=plots.COLORS["compute"])
    right.bar_label(bars, fmt="%.0f", padding=2)
    right.set_ylim(0, max(counts) * 1.15)
    fewer = counts[0] / counts[-1]
    plots.label(
        right,
        y="instructions a token and query head",
        title=f"{target}: {fewer:.0f} times fewer instructions",
    )
    for ax in (left, right):
        ax.set_xticks(range(len(STAGES)), [stage.title.replace(" ", "\n") for stage in STAGES])
        ax.grid(axis="x", visible=False)
    return figure
