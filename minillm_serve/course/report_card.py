"""The report card of an exercise: the naive part, yours and the engine's own on one fixed trace.

Counters (bytes, blocks, steps) are the same on every run and have a target each. Time is measured
side by side and shown as a ratio to the engine's own part, since nothing else about it travels from
one machine to another.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minillm_serve.core import PartError
from minillm_serve.parts import Part

ROWS = ("naive", "yours", "reference")
NOTHING = "–"
SIGNS = {"=": "=", "<=": "≤", ">=": "≥"}
GREEN, RED = "#00734f", "#b3261e"


@dataclass(frozen=True, slots=True)
class Measure:
    """A counter and what is wanted of it.

    Attributes:
        name: the column's head, with the unit.
        sign: how the counter must compare with the target: "=", "<=" or ">=".
        value: the target; None takes the reference's own counter.
        slack: by how much the reference's counter may be missed, as a share of it.
        format: of the numbers.
    """

    name: str
    sign: str
    value: float | None = None
    slack: float = 0.0
    format: str = ",.0f"

    def target(self, reference: float) -> float:
        """The number to reach."""
        if self.value is not None:
            return self.value
        return reference * (1 + self.slack if self.sign == "<=" else 1 - self.slack)

    def is_met(self, found: float, target: float) -> bool:
        """Whether a counter reaches its target."""
        if self.sign == "=":
            return found == target
        return found <= target if self.sign == "<=" else found >= target

    def text(self, number: float | None) -> str:
        """A number as the table shows it; None could not be counted."""
        return NOTHING if number is None else format(number, self.format)


Counters = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Trial:
    """How the parts of one slot are put to the test.

    Attributes:
        trace: what they are all given, in a few words.
        naive: the simplest part that could be called one.
        naive_is: what it does, in a few words.
        reference: the engine's own.
        measures: the columns, named as in what `count` returns.
        count: puts a part through the trace; None for what cannot be counted.
        work: what is timed, given a part's value.
    """

    trace: str
    naive: Any
    naive_is: str
    reference: Any
    measures: tuple[Measure, ...]
    count: Callable[[Part], Counters]
    work: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class ReportCard:
    """The table.

    Attributes:
        slot: which.
        owner: the name of your part.
        trial: what was done.
        counters: row -> column -> number; deterministic. Your row is empty if your part failed.
        ratios: row -> time as a multiple of the reference's.
        error: how your part failed; "" if it did not.
    """

    slot: str
    owner: str
    trial: Trial
    counters: Mapping[str, Counters]
    ratios: Mapping[str, float]
    error: str = ""

    @property
    def targets(self) -> dict[str, float]:
        """The number to reach in each column that could be counted."""
        known = self.counters["reference"]
        return {
            measure.name: measure.target(found)
            for measure in self.trial.measures
            if (found := known[measure.name]) is not None
        }

    @property
    def met(self) -> dict[str, bool]:
        """Which targets your part reaches; a column that cannot be counted has none."""
        yours, targets = self.counters["yours"], self.targets
        return {
            measure.name: measure.is_met(found, targets[measure.name])
            for measure in self.trial.measures
            if (found := yours.get(measure.name)) is not None and measure.name in targets
        }

    @property
    def passed(self) -> bool:
        """Whether your part ran and reaches every target."""
        return not self.error and all(self.met.values())

    def __repr__(self) -> str:
        """Aligned text."""
        grid = [list(line) for line in self._lines()]
        widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in grid
        ]
        error = [self.error] if self.error else []
        return "\n".join([self._title(), *lines, *error, self._note()])

    def _repr_html_(self) -> str:
        """A table; your row is marked, a missed target is red."""
        head, *body = self._lines()
        rows = "".join(_row(cells, "td", mark=cells[0] == "yours") for cells in body)
        error = f'<p style="color:{RED}"><b>{html.escape(self.error)}</b></p>' * bool(self.error)
        below = f"{error}<small>{html.escape(self._note())}</small>"
        return (
            f"<div><b>{html.escape(self._title())}</b>"
            f"<table><thead>{_row(head, 'th')}</thead><tbody>{rows}</tbody></table>{below}</div>"
        )

    def _title(self) -> str:
        return f"{self.slot}: {self.owner} on {self.trial.trace}"

    def _lines(self) -> Iterable[Sequence[str]]:
        measures, targets, met = self.trial.measures, self.targets, self.met
        yield ["", *(measure.name for measure in measures), "time"]
        for row in ROWS:
            numbers = self.counters[row]
            ratio = f"{self.ratios[row]:.1f}x" if row in self.ratios else NOTHING
            yield [row, *(measure.text(numbers.get(measure.name)) for measure in measures), ratio]
        wanted = [
            f"{SIGNS[measure.sign]} {measure.text(targets[measure.name])}"
            if measure.name in targets
            else NOTHING
            for measure in measures
        ]
        yield ["target", *wanted, ""]
        ticks = {True: "✓", False: "✗", None: NOTHING}
        yield ["met", *(ticks[met.get(measure.name)] for measure in measures), ""]

    def _note(self) -> str:
        return (
            f"naive: {self.trial.naive_is}; reference: the engine's own; time: as a multiple of "
            "the reference's"
        )


def report_card(
    slot: str,
    yours: Any,
    *,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> ReportCard:
    """Compares your part with the naive one and with the engine's own.

    Args:
        slot: as in `LLM(parts=...)`.
        yours: what you would give there.
        rounds: times are the best of so many, taken in turns.
        clock: in seconds.

    Raises:
        ValueError: there is no such slot, or nothing to compare its parts on.
    """
    from minillm_serve.course.report_trials import TRIALS

    if slot not in TRIALS:
        raise ValueError(f"there is no report card for slot {slot!r}; choose from {list(TRIALS)}")
    part = Part(slot, yours)
    trial = TRIALS[slot](yours)
    contestants = {"naive": trial.naive, "yours": yours, "reference": trial.reference}
    counters: dict[str, Counters] = {}
    error = ""
    for row, value in contestants.items():
        try:
            counters[row] = trial.count(Part(slot, value))
        except PartError as fault:
            if row != "yours":
                raise
            counters[row], error = {}, str(fault)
    if error:
        del contestants["yours"]
    ratios = _time(contestants, trial.work, rounds, clock)
    return ReportCard(slot, part.owner, trial, counters, ratios, error)


def _time(
    contestants: Mapping[str, Any],
    work: Callable[[Any], object],
    rounds: int,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Best times as multiples of the reference's; in turns, so that a busy moment hits all."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for row, value in contestants.items():
            began = clock()
            work(value)
            best[row] = min(best[row], clock() - began)
    return {row: seconds / best["reference"] for row, seconds in best.items()}


def _row(cells: Sequence[str], tag: str, *, mark: bool = False) -> str:
    made = []
    for place, cell in enumerate(cells):
        color = {"✓": f";color:{GREEN}", "✗": f";color:{RED}"}.get(cell, "")
        style = f"text-align:{'right' if place else 'left'}{color}"
        made.append(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>')
    outline = ' style="outline:2px solid #0072B2"' if mark else ""
    return f"<tr{outline}>{''.join(made)}</tr>"
