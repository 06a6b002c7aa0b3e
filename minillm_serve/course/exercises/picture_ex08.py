"""ex08's question, and the picture that answers it: a row, its steps, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.course.quiz import Question, Quiz

#: A token with small numbers and one with large ones, in one head.
SMALL, LARGE = (0.031, -0.012, 0.024, 0.008), (6.35, -2.12, 0.42, 3.29)


def predict_first() -> Quiz:
    """What is left of a small token if a large one decides the scale? A question for a pen."""
    text = (
        f"Two tokens are stored in one step. One has the numbers {list(LARGE)}, the other "
        f"{list(SMALL)}. One scale for both: 6.35 / 127 = 0.05. What is stored of the second?"
    )
    why = {
        0: "Then its codes would be 31, -12, 24 and 8 of a finer step. This step is 0.05.",
        1: "0.031 is 0.62 of a step, and rounds to one whole; the others round to none. One number "
        "out of four is left, and it is 60 % too large.",
        2: "0.031 / 0.05 = 0.62, and that is nearer to 1 than to 0.",
    }
    choices = ["all of it, a little rounded", "[0.05, 0, 0, 0]", "only zeros"]
    return Quiz([Question(text, choices, answer=1, why=why)])


def row_picture(quantizer: Any, row: Sequence[float]) -> Figure:
    """A row's numbers on the lattice that its scale spans, and how far each is moved.

    Args:
        quantizer: with `quantize` and `dequantize`.
        row: numbers of one token in one head.
    """
    x = torch.tensor(row)[None, None]
    codes, scales = quantizer.quantize(x)
    back, scale = quantizer.dequantize(codes, scales)[0, 0].tolist(), scales.item()
    fig, axes = plots.figure(1, 2, height=3.1, width_ratios=(3, 2))
    places = range(len(row))
    axes[0].bar(places, row, 0.6, color=plots.COLORS["kv"])
    for place, number, code in zip(places, row, codes[0, 0].tolist(), strict=True):
        up = number >= 0
        axes[0].text(place, number, f"{code}", ha="center", va="bottom" if up else "top")
    axes[0].margins(y=0.18)
    axes[0].set_xticks(list(places))
    plots.label(axes[0], x="place in the row", y="value", title=f"Codes: a step is {scale:.3g}")
    off = [(b - a) / scale if scale else 0.0 for a, b in zip(row, back, strict=True)]
    axes[1].bar(places, off, 0.6, color=plots.COLORS["wasted"])
    for edge in (-0.5, 0.5):
        axes[1].axhline(edge, color=plots.COLORS["limit"], ls="--", lw=1.2)
    axes[1].set(xticks=list(places), ylim=(-0.75, 0.75))
    plots.label(
        axes[1], x="place in the row", y="error (steps)", title="Off by half a step at most"
    )
    return fig
