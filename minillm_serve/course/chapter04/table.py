"""The batch as a table that every step rewrites: who is in which row, and how long it is by now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minillm_serve.core import ScheduleRecord


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the batch in one step.

    Attributes:
        request_id: whose it is.
        length: tokens whose KV it has at the end of the step (L).
        num_tokens: of these computed in this step.
        enters: it was not there in the step before.
        leaves: it is not there in the step after.
    """

    request_id: str
    length: int
    num_tokens: int
    enters: bool
    leaves: bool

    def __str__(self) -> str:
        """As in `7: +58 → 58` for a prompt that is read, `7: 59` later, `7: 70 ■` at the end."""
        grown = f"+{self.num_tokens} → {self.length}" if self.num_tokens > 1 else f"{self.length}"
        return f"{self.request_id}: {grown}{' ■' if self.leaves else ''}"


def rows(record: ScheduleRecord) -> list[dict[int, Row]]:
    """For every step, slot -> row; slots in which nothing was computed are missing."""
    table: list[dict[int, Row]] = [{} for _ in range(len(record))]
    spans = record.spans()
    first = {span.request_id: span.first_step for span in reversed(spans)}
    last = {span.request_id: span.end_step - 1 for span in spans}
    for span in spans:
        for step in range(span.first_step, span.end_step):
            table[step][span.slot] = Row(
                span.request_id,
                span.start + (step - span.first_step + 1) * span.num_tokens,
                span.num_tokens,
                enters=step == first[span.request_id],
                leaves=step == last[span.request_id],
            )
    return table


def printed(record: ScheduleRecord, steps: Iterable[int]) -> list[list[str]]:
    """Lines to be shown: step, B, one cell a slot, and what the step changed."""
    table, lines = rows(record), []
    for step in steps:
        row = table[step]
        cells = [str(row[slot]) if slot in row else "" for slot in range(record.num_slots)]
        lines.append([str(step), str(len(row)), *cells, _change(row)])
    return lines


def _change(row: dict[int, Row]) -> str:
    came = [one.request_id for one in row.values() if one.enters]
    left = [one.request_id for one in row.values() if one.leaves]
    told = [f"{', '.join(came)} in"] if came else []
    return "; ".join([*told, f"{', '.join(left)} out after it"] if left else told)
