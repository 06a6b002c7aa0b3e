"""Pictures of chapter 07 that are no experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from minillm_serve.course import plots


def draw_step(known: Sequence[str], drafts: Sequence[str], says: Sequence[str]) -> Figure:
    """One verification: what goes in, and what the model says after each of it.

    Args:
        known: the last few tokens of a text; the last of them is the one to be computed.
        drafts: guesses of what follows [k].
        says: what the model says after the last known token and after each draft [k + 1].
    """
    fig, ax = plots.figure(height=2.7)
    pairs = enumerate(zip(drafts, says, strict=False))
    kept = next((i for i, (draft, said) in pairs if draft != said), len(drafts))
    green, blue = plots.COLORS["accepted"], plots.COLORS["decode"]
    behind = "#F1F3F5", plots.GREY
    first = len(known) - 1
    for x, word in enumerate(known):
        _box(ax, x, 1.55, word, plots.PALE if x < first else "#C9CFD6", plots.INK)
    for i, word in enumerate(drafts):
        wrong = ("#F8D9C7", plots.COLORS["rejected"]) if i == kept else behind
        _box(ax, first + 1 + i, 1.55, word, *((green, "white") if i < kept else wrong))
        if i >= kept:
            ax.plot([first + 0.68 + i, first + 1.32 + i], [1.55, 1.55], color=wrong[1], lw=1.3)
    for i, word in enumerate(says):
        arrow = {"arrowstyle": "-|>", "color": plots.GREY, "lw": 1.3}
        ax.annotate("", (first + i, 0.62), (first + i, 1.2), arrowprops=arrow)
        own = (blue, "white") if i == kept else behind
        _box(ax, first + i, 0.3, word, *((green, "white") if i < kept else own))
    for y, said in ((1.55, "goes in"), (0.3, "the model says")):
        ax.text(-1.75, y, said, va="center", fontsize=10.5)
    ax.text(first + 0.58, 2.05, "k drafts, side by side", fontsize=9.5, color="#52606D")
    said = "after each of them: what comes next. Equal to the draft there? Then it stays."
    ax.text(first - 0.42, -0.32, said, fontsize=9.5, color="#52606D")
    ax.set(xlim=(-1.8, first + len(drafts) + 0.6), ylim=(-0.45, 2.3))
    ax.axis("off")
    title = f"One step: {len(drafts)} guesses, {kept} of them right, {kept + 1} new tokens"
    plots.label(ax, title=title)
    return fig


def _box(ax: Axes, x: float, y: float, word: str, color: str, ink: str) -> None:
    shape = "round,pad=0,rounding_size=0.08"
    ax.add_patch(FancyBboxPatch((x - 0.42, y - 0.3), 0.84, 0.6, boxstyle=shape, color=color))
    ax.text(x, y, word, ha="center", va="center", color=ink, fontsize=10.5)


def draw_exits(exits: Mapping[int, float], num_layers: int, head: tuple[float, float]) -> Figure:
    """How often the first draft is right, over how much of the model makes it.

    Args:
        exits: layers that are run -> share of first drafts that are right.
        num_layers: of the model (N).
        head: layers that a trained head reads as many bytes as, and its share.
    """
    fig, ax = plots.figure(height=3.5)
    layers = list(exits)
    ax.plot(
        [*layers, num_layers], [*(100 * share for share in exits.values()), 100], "o-",
        color=plots.PURPLE, label="the model itself, left early",
    )  # fmt: skip
    size, share = head
    ax.plot(
        [size], [100 * share], "*", ms=17, color=plots.BLUE,
        label="a trained head (by its share of the model's bytes)",
    )  # fmt: skip
    ax.axhline(100 * share, color=plots.BLUE, ls=":", lw=1.3)
    like = np.interp(share, [*exits.values(), 1.0], [*layers, num_layers])
    title = f"The head guesses as well as {like:.0f} of the {num_layers} layers"
    plots.label(ax, x="layers run for a draft", y="first drafts that are right (%)", title=title)
    ax.set(xlim=(0, num_layers + 0.6), ylim=(-2, 104))
    ax.legend(loc="upper left", frameon=False)
    return fig


def draw_lengths(chosen: Mapping[str, Mapping[int, float]], most: int) -> Figure:
    """How many drafts an engine gave on average, over the batch size.

    Args:
        chosen: kind of text -> B -> drafts a sequence and step.
        most: that it might have given.
    """
    fig, ax = plots.figure(height=3.1)
    for (kind, found), marker in zip(chosen.items(), "Ds", strict=False):
        ax.plot(list(found), list(found.values()), f"{marker}-", ms=7, label=kind)
    ax.axhline(most, color=plots.COLORS["limit"], ls="--", lw=1.4)
    ax.text(1, most, "most that it may have", color=plots.COLORS["limit"], fontsize=9, va="bottom")
    ax.set_xscale("log", base=2)
    sizes = sorted({B for found in chosen.values() for B in found})
    ax.set_xticks(sizes, [f"{B}" for B in sizes])
    ax.set_ylim(0, 1.15 * most)
    first = next(iter(chosen.values()))
    title = f"From {first[sizes[0]]:.1f} drafts alone to {first[sizes[-1]]:.1f} among {sizes[-1]}"
    plots.label(ax, x="sequences B", y="drafts a sequence, mean", title=title)
    return fig
