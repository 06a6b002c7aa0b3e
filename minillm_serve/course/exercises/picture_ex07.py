"""ex07's question, and the picture that answers it: what two distributions have in common."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.course.quiz import Question, Quiz

WIDTH = 0.34
#: Of the model and of the drafter.
P, Q = (0.5, 0.3, 0.2), (0.2, 0.3, 0.5)


def predict_first() -> Quiz:
    """How many drafts can be kept? A question for a pen."""
    text = (
        f"The model has p = {list(P)}, and a drafter has q = {list(Q)}. It draws 100 drafts from "
        "q. How many of them can be kept, at most, if what comes out is to be distributed as p?"
    )
    why = {
        0: "So often would model and drafter draw the same token, if both drew: that is the sum of "
        "p q. But the model need not draw. The draft is there already, and may be kept.",
        1: "That is 1 - sum |p - q|, and counts every difference twice: at a token that is drafted "
        "too often, and at one that is drafted too rarely.",
        2: "Token 0: all of its 20 drafts are welcome, for it should come 50 times. Token 1: 30 of "
        "30. Token 2: 20 of 50, for else it would come too often.",
        3: "Then token 2 would come 50 times in 100, and not 20 times.",
    }
    return Quiz([Question(text, ["29", "40", "70", "100"], answer=2, why=why)])


def overlap_picture(p: Sequence[float], q: Sequence[float]) -> Figure:
    """Two bars a token: q, in what is kept and what is refused, and p, in what is kept and lacks.

    Args:
        p: of the model.
        q: of the drafter.
    """
    common = [min(pair) for pair in zip(p, q, strict=True)]
    fig, ax = plots.figure(height=3.4)
    for side, whole, rest, color in (
        (-1, q, "refused: q has more", plots.COLORS["rejected"]),
        (1, p, "picked anew: p has more", plots.COLORS["useful"]),
    ):
        places = [token + side * (WIDTH / 2 + 0.01) for token in range(len(p))]
        extra = [one - both for one, both in zip(whole, common, strict=True)]
        kept = "kept: both have it" if side < 0 else None
        ax.bar(places, common, WIDTH, color=plots.COLORS["accepted"], label=kept)
        ax.bar(places, extra, WIDTH, bottom=common, color=color, label=rest)
        for place, height in zip(places, whole, strict=True):
            ax.text(place, height + 0.01, "q" if side < 0 else "p", ha="center")
    lacking = 1 - sum(common)
    ax.set_xticks(range(len(p)))
    ax.set_ylim(0, max(*p, *q) * 1.15)
    title = f"As much is refused as is lacking: {lacking:.2f}"
    plots.label(ax, x="token", y="probability", title=title)
    return fig
