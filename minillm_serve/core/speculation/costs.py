"""What a step takes with so many rows and drafts, from a few that were measured."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


class Curve:
    """Seconds as a function of rows: straight lines between points, never falling.

    Fewer rows than at the first point take what it says; behind the last point the last line goes
    on. More rows never take less time; and whatever disturbs a measurement can only add to it. So a
    point above a later one is lowered to that.

    Args:
        points: pairs (rows, seconds), in any order. One point is a constant, none is nothing.

    Raises:
        ValueError: rows below 1 or twice the same, or seconds below 0 or not finite.
    """

    __slots__ = ("_increments", "_least", "_table", "points")

    def __init__(self, points: Iterable[tuple[int, float]] = ()) -> None:
        lowered: dict[int, float] = {}
        lowest = math.inf
        for rows, seconds in sorted(points, reverse=True):
            if rows < 1 or rows in lowered:
                raise ValueError(f"{rows} rows: expected at least 1, and each number once")
            if not 0 <= seconds < math.inf:
                raise ValueError(f"{seconds!r} seconds for {rows} rows: expected 0 or more")
            lowered[rows] = lowest = min(lowest, seconds)
        self.points = tuple(reversed(lowered.items()))
        # The flattest line at or behind each point.
        self._least = [_slope(a, b) for a, b in pairwise(self.points)]
        for at in reversed(range(len(self._least) - 1)):
            self._least[at] = min(self._least[at], self._least[at + 1])
        self._table: list[float] = []
        self._increments: list[float] = []

    def __repr__(self) -> str:
        return f"Curve({list(self.points)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.points == other.points

    def __hash__(self) -> int:
        return hash(self.points)

    def __call__(self, rows: int) -> float:
        """Seconds of so many rows; 0 of none."""
        return self.table(rows)[rows]

    def table(self, most: int) -> Sequence[float]:
        """Seconds of 0, 1, ... `most` rows at least; the same list again, maybe longer."""
        table = self._table
        if len(table) <= most:
            table += map(self._seconds, range(len(table), max(2 * len(table), most + 1)))
        return table

    def increments(self, most: int) -> Sequence[float]:
        """Entry n: what n + 1 rows take more than n, for n below `most` at least."""
        if len(self._increments) < most:
            self._increments = [after - before for before, after in pairwise(self.table(most))]
        return self._increments

    @property
    def least(self) -> float:
        """Seconds that any row takes at the very least."""
        return min(self(1), self.least_slope(1))

    def least_slope(self, rows: int) -> float:
        """Seconds that a further row takes at the very least, from so many rows on."""
        if not self._least:
            return 0.0
        at = bisect_right(self.points, (rows, math.inf)) - 1
        return self._least[min(at, len(self._least) - 1)] if at >= 0 else 0.0

    def _seconds(self, rows: int) -> float:
        if rows < 1 or not self.points:
            return 0.0
        if len(self.points) == 1 or rows <= self.points[0][0]:
            return self.points[0][1]
        at = min(bisect_right(self.points, (rows, math.inf)) - 1, len(self.points) - 2)
        first, second = self.points[at : at + 2]
        return first[1] + _slope(first, second) * (rows - first[0])


#: What drafts cost that are looked up, next to a forward pass.
FREE = Curve()


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of a step, as far as they hang on its drafts.

        plain(sequences) + switch + verify(rows) - verify(sequences) + the drafter's passes

    A draft's row is cheaper than another sequence, whose context would have to be read as well. So
    there are two curves, and of `verify` only what it grows by counts.

    Attributes:
        plain: of a step without drafts, by sequences, one row each.
        verify: of a step of few sequences with drafts, by rows; drafting excluded.
        draft: of one pass of the drafter, by sequences that take part in it.
        first_draft: of a step's first pass; as the others if None.
    """

    plain: Curve
    verify: Curve
    draft: Curve = FREE
    first_draft: Curve | None = None

    @property
    def switch(self) -> float:
        """What a step takes more for having any drafts.

        On a GPU plain steps are recorded, which those with drafts are not.
        """
        return max(0.0, self.verify(2) - self.plain(2))

    def of_pass(self, number: int) -> Curve:
        """What pass 0, 1, ... of the drafter costs."""
        return self.draft if number or self.first_draft is None else self.first_draft

    def seconds(self, rows: int, drafting: Sequence[int] = ()) -> float:
        """Seconds of a step.

        Args:
            rows: tokens computed, drafts included.
            drafting: sequences that take part in each of the drafter's passes: entry j counts
                those that have more than j drafts.
        """
        num_drafts = sum(drafting)
        num_sequences = rows - num_drafts
        if not num_drafts:
            return self.plain(rows)
        passes = (self.of_pass(number)(count) for number, count in enumerate(drafting))
        more = self.verify(rows) - self.verify(num_sequences)
        return self.plain(num_sequences) + self.switch + more + sum(passes)


def _slope(first: tuple[int, float], second: tuple[int, float]) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])
