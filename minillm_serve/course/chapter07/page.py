"""A page of text, token by token, on which drafts are kept or struck out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from minillm_serve.course import plots
from minillm_serve.course.chapter07.replay import Step

#: Characters of a line, and lines of the page.
COLUMNS, LINES = 82, 8
#: Points; at this size as many characters fill the width of a figure.
FONT_SIZE = 11.4
#: Kind of token -> colour behind it, colour of its text, and what is said about it.
KINDS = {
    "own": ("none", plots.INK, "the model's own, before"),
    "guessed": ("#CFEBE1", plots.INK, "guessed, before"),
    "kept": (plots.COLORS["accepted"], "white", "accepted now"),
    "wrong": ("#F8D9C7", plots.COLORS["rejected"], "wrong: struck out"),
    "behind": ("#F1F3F5", "#8A939C", "behind a wrong one: not looked at"),
    "instead": (plots.COLORS["decode"], "white", "the model's own, now"),
}
#: Kind -> symbols of the formula that govern it.
SYMBOLS = {"kept": ("alpha", "k"), "wrong": ("alpha", "k"), "behind": ("k",)}
STRUCK = ("wrong", "behind")


@dataclass(frozen=True, slots=True)
class Mark:
    """A token on the page.

    Attributes:
        kind: a key of `KINDS`.
        text: what is written there.
    """

    kind: str
    text: str


def marks(
    token_ids: Sequence[int], steps: Sequence[Step], piece: Callable[[int], str]
) -> list[Mark]:
    """The text after some steps; the last of them with everything that was guessed.

    Args:
        token_ids: of the whole answer.
        steps: at least one.
        piece: the text of a token.
    """
    found = [Mark("own", piece(token_ids[0]))]
    for step in steps[:-1]:
        found += [Mark("guessed", piece(token)) for token in step.drafts[: step.kept]]
        found.append(Mark("own", piece(step.token)))
    last = steps[-1]
    found += [Mark("kept", piece(token)) for token in last.drafts[: last.kept]]
    wrong = last.drafts[last.kept :]
    found += [
        Mark("wrong" if number == 0 else "behind", piece(token))
        for number, token in enumerate(wrong)
    ]
    found.append(Mark("instead", piece(last.token)))
    return found


@dataclass(frozen=True, slots=True)
class Placed:
    """A token, or a part of one that runs over the end of a line.

    Attributes:
        mark: which.
        line: counted from the top, from 0.
        column: where it begins.
        text: as it is shown.
    """

    mark: Mark
    line: int
    column: int
    text: str


def lay_out(tokens: Iterable[Mark]) -> list[Placed]:
    """Puts tokens one behind the other, in lines of equal letters.

    The end of a line is shown, and what comes after it begins a new one, unless it was struck out.
    """
    placed, line, column = list[Placed](), 0, 0
    for mark in tokens:
        for number, part in enumerate(mark.text.replace("\t", " ").split("\n")):
            if number:
                placed.append(Placed(mark, line, column, "↵"))
                column += 1
                if mark.kind not in STRUCK:
                    line, column = line + 1, 0
            text = part
            if column + len(text) > COLUMNS:
                line, column, text = line + 1, 0, text.lstrip()
            if text:
                placed.append(Placed(mark, line, column, text))
                column += len(text)
    return placed


def draw(ax: Axes, tokens: Sequence[Mark]) -> None:
    """Draws the last lines of a page."""
    placed = lay_out(tokens)
    first = max(0, placed[-1].line - LINES + 1)
    for one in placed:
        if one.line >= first:
            _draw_one(ax, one, one.line - first)
    ax.set(xlim=(-0.5, COLUMNS + 0.5), ylim=(LINES - 0.3, -0.6))
    ax.axis("off")
    handles = [
        Patch(facecolor=color, edgecolor=plots.GREY if color == "none" else "none", label=said)
        for color, _, said in KINDS.values()
    ]
    ax.legend(
        handles=handles, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0.0), fontsize=9,
        frameon=False, handlelength=1.2, columnspacing=1.6,
    )  # fmt: skip


def _draw_one(ax: Axes, one: Placed, line: int) -> None:
    color, ink, _ = KINDS[one.mark.kind]
    symbols = SYMBOLS.get(one.mark.kind, ())
    if color != "none":
        size = len(one.text), 0.8
        box = Rectangle((one.column, line - 0.4), *size, facecolor=color, edgecolor="white", lw=1.3)
        ax.add_patch(box)
        if symbols:
            plots.mark(box, *symbols)
    ax.text(
        one.column, line, one.text, family="DejaVu Sans Mono", fontsize=FONT_SIZE, color=ink,
        va="center_baseline", ha="left", parse_math=False,
    )  # fmt: skip
    if one.mark.kind in STRUCK:
        ax.plot([one.column, one.column + len(one.text)], [line, line], color=ink, lw=1.2)
