"""A schedule as rectangles: who is in which slot from when to when, and which slots are empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from minillm_serve.course.chapter04.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Bar:
    """A slot from one moment to another; in steps, and in seconds after the first arrival.

    Attributes:
        slot: row of the batch.
        first_step: the first of its steps.
        end_step: the step after the last.
        began: when the first one began.
        ended: when the last one ended.
        request_id: who computed there; empty if nobody did.
        is_prompt: whether a prompt was read.
    """

    slot: int
    first_step: int
    end_step: int
    began: float
    ended: float
    request_id: str = ""
    is_prompt: bool = False

    @property
    def cells(self) -> int:
        """Steps that it covers."""
        return self.end_step - self.first_step

    @property
    def seconds(self) -> float:
        """Time that it covers."""
        return self.ended - self.began


def busy(schedule: Schedule) -> list[Bar]:
    """Where something was computed, by person."""
    moments = _moments(schedule)
    return [
        Bar(
            span.slot,
            span.first_step,
            span.end_step,
            moments[span.first_step][0],
            moments[span.end_step - 1][1],
            span.request_id,
            span.num_tokens > 1,
        )
        for span in schedule.record.spans()
    ]


def idle(schedule: Schedule, *, dragged_only: bool = False) -> list[Bar]:
    """Where nothing was computed while a step ran.

    Args:
        schedule: of any scheduler.
        dragged_only: only rows of a fixed batch that were taken along after their answer's end,
            and no places that nobody had taken.
    """
    record, moments = schedule.record, _moments(schedule)
    dragged = zip(record.num_rows, record.num_idle, strict=True)
    tables = [rows + idle if idle else 0 for rows, idle in dragged]
    found = []
    for slot, cells in enumerate(record.cells()):
        empty = [
            cell is None and (slot < size or not dragged_only)
            for cell, size in zip(cells, tables, strict=True)
        ]
        for first, end in _stretches(empty):
            found.append(Bar(slot, first, end, moments[first][0], moments[end - 1][1]))
    return found


def held_up(schedule: Schedule) -> list[tuple[float, float]]:
    """From when to when nothing ran although somebody was there: a batch waited to be filled."""
    began = {name: began for name, (began, _) in schedule.times().items()}
    arrived = {name: time - schedule.began for name, time in schedule.arrivals.items()}
    found = []
    edges = [(0.0, 0.0), *_moments(schedule)]
    for (_, ended), (begins, _) in pairwise(edges):
        there = [arrived[n] for n in arrived if arrived[n] < begins <= began[n]]
        if there and begins - max(ended, min(there)) > 1e-9:
            found.append((max(ended, min(there)), begins))
    return found


def _moments(schedule: Schedule) -> list[tuple[float, float]]:
    """When each step ran, in seconds after the first arrival."""
    zero = schedule.began
    return [(began - zero, ended - zero) for began, ended in schedule.record.ran()]


def _stretches(flags: list[bool]) -> Iterator[tuple[int, int]]:
    """First and end of each run of True: [F, T, T, F] -> (1, 3)."""
    first = None
    for index, flag in enumerate([*flags, False]):
        if flag and first is None:
            first = index
        elif not flag and first is not None:
            yield first, index
            first = None
