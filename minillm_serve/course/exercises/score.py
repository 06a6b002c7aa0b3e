"""What a check shows: ticks, the first difference, hints; and the points that it counts for."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minillm_serve.course.exercises.evidence import shortened
from minillm_serve.course.exercises.exercise import Case, CheckFailed, NotWritten, Opaque, Part


@dataclass(frozen=True)
class Tick:
    """One check, judged.

    Attributes:
        name: the check's statement.
        points: what it is worth.
        failure: why it is not true of the answer; None if it is.
        case: the first case that failed, in one line.
    """

    name: str
    points: float
    failure: CheckFailed | None
    case: str = ""

    @property
    def earned(self) -> float:
        """All of the points, or none."""
        return 0.0 if self.failure else self.points

    @property
    def unwritten(self) -> str:
        """What is still to be written, if the answer is the stub that was released."""
        return self.failure.message if isinstance(self.failure, NotWritten) else ""

    def lines(self) -> list[str]:
        """The tick, and below it what went wrong."""
        mark = "✗" if self.failure else "✓"
        lines = [f"{mark} {self.name} ({self.earned:g} of {self.points:g})"]
        if self.failure:
            lines += [f"    {self.failure.message}"] if self.failure.message else []
            lines += [f"    {label:<9} {value}" for label, value in self.details()]
            if self.failure.drawing is not None:
                lines += [f"    {line}" for line in self.failure.drawing.text().splitlines()]
        return lines

    def details(self) -> list[tuple[str, str]]:
        """`(label, text)` of the case, the place and the two values, where they are known."""
        if self.failure is None:
            return []
        found = [("case", self.case)] if self.case else []
        found += [("at", self.failure.index)] if self.failure.index else []
        values = (("expected", self.failure.expected), ("got", self.failure.got))
        return found + [(label, shown(value)) for label, value in values if value is not ...]


@dataclass(frozen=True)
class PartScore:
    """All checks of one part, judged."""

    exercise_id: str
    part: Part
    ticks: tuple[Tick, ...]

    @property
    def earned(self) -> float:
        """Points earned."""
        return sum(tick.earned for tick in self.ticks)

    @property
    def unwritten(self) -> str:
        """What is still to be written, if no check got further than that."""
        return self.ticks[0].unwritten if all(tick.unwritten for tick in self.ticks) else ""


class Score(float):
    """Points, as a number that shows how they came about.

    Its text is the number alone, since that is what nbgrader reads as partial credit; `text` has
    the rest for terminals, and notebooks show it as a page.

    Attributes:
        title: what was checked.
        possible: points that could be earned.
        ticks: the checks.
        hints: from vague to clear; folded away.
        note: said below, such as why nothing was checked.
    """

    title: str
    possible: float
    ticks: tuple[Tick, ...]
    hints: tuple[str, ...]
    note: str

    def __new__(
        cls,
        earned: float,
        *,
        title: str,
        possible: float,
        ticks: Sequence[Tick] = (),
        hints: Sequence[str] = (),
        note: str = "",
    ) -> Score:
        """Makes the number and hangs the rest on it."""
        self = super().__new__(cls, earned)
        self.title, self.possible, self.note = title, possible, note
        self.ticks, self.hints = tuple(ticks), tuple(hints)
        return self

    @classmethod
    def of_part(cls, scored: PartScore) -> Score:
        """The score of one part, with its hints if something is missing."""
        missing = any(tick.failure for tick in scored.ticks)
        return cls(
            scored.earned,
            title=f"{scored.exercise_id}-{scored.part.id}: {scored.part.answer}",
            possible=scored.part.points,
            ticks=() if scored.unwritten else scored.ticks,
            hints=scored.part.hints if missing else (),
            note=scored.unwritten,
        )

    @property
    def text(self) -> str:
        """Everything but the hints, for a terminal."""
        lines = [self._headline(), *(line for tick in self.ticks for line in tick.lines())]
        return "\n".join([*lines, self.note] if self.note else lines)

    def _headline(self) -> str:
        return f"{self.title}: {float(self):g} of {self.possible:g} points"

    def _repr_html_(self) -> str:
        """The same as a page, hints folded."""
        first = next((tick for tick in self.ticks if tick.failure), None)
        rows = "".join(_tick_html(tick, unfolded=tick is first) for tick in self.ticks)
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return (
            f'<div class="mls-score"><p><b>{html.escape(self._headline())}</b></p>'
            f'<ul style="list-style:none;padding-left:0">{rows}</ul>{note}'
            f"{hints_html(self.hints)}</div>"
        )


def hints_html(hints: Sequence[str], start: int = 1) -> str:
    """Each hint folded away behind the one before it; the first has number `start`."""
    inside = ""
    last = start + len(hints) - 1
    for number, hint in reversed(list(enumerate(hints, start))):
        inside = (
            f"<details><summary>Hint {number} of {last}</summary>"
            f"<p>{html.escape(hint)}</p>{inside}</details>"
        )
    return inside


def _tick_html(tick: Tick, *, unfolded: bool) -> str:
    """A tick; of several that failed, the first is worth looking at first."""
    mark, color = ("✗", "#D55E00") if tick.failure else ("✓", "#009E73")
    head = (
        f'<b style="color:{color}">{mark}</b> {html.escape(tick.name)} '
        f"<small>({tick.earned:g} of {tick.points:g})</small>"
    )
    if tick.failure is None:
        return f"<li>{head}</li>"
    rows = "".join(
        f'<tr><th style="text-align:left">{label}</th>'
        f'<td style="text-align:left"><code>{html.escape(value)}</code></td></tr>'
        for label, value in tick.details()
    )
    table = f"<table>{rows}</table>" if rows else ""
    drawn = tick.failure.drawing.html() if tick.failure.drawing is not None else ""
    said, more = html.escape(tick.failure.message), f"{table}{drawn}"
    if not said and not more:
        return f"<li>{head}</li>"
    if not unfolded and more:
        body = f"<details><summary>{said}</summary>{more}</details>"
    else:
        body = f"<div>{said}</div>{more}"
    return f'<li>{head}<div style="padding-left:1.4em">{body}</div></li>'


def shown(value: Any) -> str:
    """A value as learners read it: whole numbers with separators, arrays without noise."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.10g}"
    if isinstance(value, Opaque):
        return value.text
    if isinstance(value, np.ndarray):
        return shortened(np.array2string(value, precision=6, threshold=20).replace("\n", " "))
    return shortened(value if isinstance(value, str) else repr(value))


def described(case: Case) -> str:
    """A case in one line."""
    return shortened(", ".join(f"{name}={shown(value)}" for name, value in case.items()))
