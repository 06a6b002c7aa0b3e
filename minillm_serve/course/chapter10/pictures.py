"""Pictures of chapter 10: a request's way, readings over time, and what the two numbers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from minillm_serve.course import plots

#: The stations of a request's way, and what happens to whom there.
STATIONS = (
    ("client", "", plots.PALE),
    ("HTTP", "bad input: 400\ntoo large: 413", plots.SKY),
    ("door", "never possible: 400\nnot now: 429", plots.ORANGE),
    ("queue", "too late: 503", plots.YELLOW),
    ("batch", "KV blocks,\na token a step", plots.BLUE),
    ("stream", "hung up:\nblocks free", plots.GREEN),
)
#: The rule of thumb: below it, the machine is not what is short.
RULE = 0.70
#: KV usage above which memory is what is short.
FULL = 0.75
#: Where the fields end on the right: a little past 100 %, for the points there.
EDGE = 1.08


def draw_way() -> Figure:
    """What a request passes through, and where it may leave."""
    fig, ax = plots.figure(height=2.2)
    ax.set_axis_off()
    ax.grid(visible=False)
    for place, (name, leaves, color) in enumerate(STATIONS):
        x = 1.65 * place
        box = FancyBboxPatch(
            (x, 0.55), 1.1, 0.5, boxstyle="round,pad=0.04", fc=color, ec="#7B8794", lw=0.8
        )
        ax.add_patch(box)
        dark = color in (plots.BLUE, plots.GREEN)
        ax.text(
            x + 0.55,
            0.8,
            name,
            ha="center",
            va="center",
            fontsize=11,
            color="white" if dark else plots.INK,
        )
        if place:
            ax.annotate(
                "",
                (x - 0.06, 0.8),
                (x - 0.5, 0.8),
                arrowprops={"arrowstyle": "-|>", "color": plots.INK, "lw": 1.4},
            )
        if leaves:
            ax.annotate(
                "",
                (x + 0.55, 0.26),
                (x + 0.55, 0.5),
                arrowprops={"arrowstyle": "-|>", "color": plots.GREY, "lw": 1.2},
            )
            ax.text(x + 0.55, 0.2, leaves, ha="center", va="top", fontsize=9, color=plots.INK)
    last = 1.65 * (len(STATIONS) - 1) + 1.1
    ax.annotate(
        "",
        (0.55, 1.11),
        (last - 0.55, 1.11),
        arrowprops={
            "arrowstyle": "-|>",
            "color": plots.GREEN,
            "lw": 1.4,
            "connectionstyle": "arc3,rad=0.12",
        },
    )
    ax.text(last / 2, 1.62, "tokens, one by one", ha="center", fontsize=9.5, color=plots.GREEN)
    ax.set(xlim=(-0.15, last + 0.15), ylim=(-0.35, 1.8))
    return fig


def draw_waits(ttft: Sequence[float], promised: float) -> Figure:
    """How long each of a crowd waited for the first token, in order of coming [s]."""
    fig, ax = plots.figure(height=3.2)
    late = [wait > promised for wait in ttft]
    colors = [plots.COLORS["wasted"] if one else plots.COLORS["useful"] for one in late]
    ax.bar(range(1, len(ttft) + 1), ttft, color=colors)
    ax.axhline(promised, color=plots.INK, ls="--", lw=1.4, label=f"promised: {promised:g} s")
    said = f"{sum(late)} of {len(late)} wait longer than promised"
    plots.label(ax, x="in order of coming", y="first token after (s)", title=said)
    return fig


def draw_numbers(places: Mapping[str, tuple[float, float]]) -> Figure:
    """Where some loads stand between the two numbers, and what to turn there.

    Args:
        places: name of a load -> busy share and KV usage, from 0 to 1.
    """
    fig, ax = plots.figure(height=4.4)
    _draw_fields(ax)
    seen = list(places.values())
    for number, (name, (x, y)) in enumerate(places.items(), 1):
        plots.measured(ax, [x], [y], label=f"{number}: {name}")
        shifted = sum(abs(x - a) + abs(y - b) < 0.06 for a, b in seen[: number - 1])
        ax.annotate(
            f"{number}",
            (x, y),
            (-14, 6 + 13 * shifted),
            textcoords="offset points",
            fontsize=11,
            fontweight="bold",
        )
    ax.set(xlim=(0, EDGE), ylim=(0, 1.02))
    ax.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    plots.label(ax, x="busy: share of the time in which a step ran", y="KV usage")
    ax.set_title("Two numbers say where to look first", loc="left", fontsize=12.5)
    ax.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9.5, handlelength=0.8
    )
    return fig


def _draw_fields(ax: Axes) -> None:
    fields = (
        (0.0, 0.0, RULE, FULL, plots.PALE, "the machine is not short of work it can do:\n"
         "look in front of it (clients, network, queue,\ntokenizing, one thread of Python)"),
        (RULE, 0.0, EDGE, FULL, plots.SKY, "bound by arithmetic\nor bandwidth:\nquantize weights,\n"
         "speculate if few,\nanother card"),
        (0.0, FULL, RULE, 1.02, plots.ORANGE, "memory is short: quantize KV, add blocks"),
        (RULE, FULL, EDGE, 1.02, plots.VERMILLION, "full: a door,\nanother replica"),
    )  # fmt: skip
    for left, bottom, right, top, color, said in fields:
        ax.fill_between([left, right], bottom, top, color=color, alpha=0.28, lw=0)
        y = (bottom + min(top, 1.0)) / 2
        ax.text((left + min(right, 0.97)) / 2, y, said, ha="center", va="center", fontsize=9)
