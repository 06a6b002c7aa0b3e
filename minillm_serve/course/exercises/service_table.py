"""A schedule as a table: a row a guest, a column a step."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minillm_serve.course.exercises.service_books import Moment

#: Steps that are shown of a schedule that is wrong: the last ones.
SHOWN = 16
LEGEND = "a number: so many tokens, ·: runs without a slice, ~: waits, x: gave way"


class Timetable:
    """Who computed how many tokens in which step, up to the step in question.

    Args:
        moments: the steps, the one in question last.
        names: everybody, in the order of coming.
        wrong: whether something is wrong with the last one.
    """

    def __init__(
        self, moments: Sequence[Moment], names: Sequence[str], *, wrong: bool = True
    ) -> None:
        self.moments, self.names, self.wrong = list(moments), list(names), wrong

    def __repr__(self) -> str:
        """As `text`."""
        return self.text()

    def _repr_html_(self) -> str:
        """As `html`."""
        return self.html()

    def text(self) -> str:
        """The table, and below it what the signs mean."""
        shown = self.moments[-SHOWN:] if self.wrong else self.moments
        heads = [str(moment.step) for moment in shown]
        heads[-1] += "!" if self.wrong else ""
        rows = [["step", *heads]]
        rows += [
            [name, *cells]
            for name in self.names
            if any(cells := [_sign(name, moment) for moment in shown])
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, f"{LEGEND}, !: the step in question" if self.wrong else LEGEND])

    def html(self) -> str:
        """The same, as a page shows it."""
        table, _, legend = self.text().rpartition("\n")
        return f"<pre>{html.escape(table)}</pre><small>{html.escape(legend)}</small>"


def _sign(name: str, moment: Moment) -> str:
    gave_way = "x" if name in moment.preempted else ""
    if name in moment.slices:
        return f"{moment.slices[name]}{gave_way}"
    if gave_way or name in moment.waiting:
        return gave_way or "~"
    return "·" if name in moment.running else ""
