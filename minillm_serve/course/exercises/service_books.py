"""The books of a service, as the judge keeps them: who stands where, and what each step decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minillm_serve.core import Priority
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.course.exercises.service import Guest, answer_alone, name_of, request_of
from minillm_serve.course.exercises.service_table import Timetable


@dataclass
class Row:
    """One guest, as far as the service has come.

    Attributes:
        name: what the guest is called.
        guest: what they want.
        number: how many came before.
        rank: their place: the lower goes first.
        solo: the tokens of their answer when nobody else is served.
        state: "away", "waiting", "running" or "ended".
        computed: tokens whose keys and values are in the cache.
        got: tokens of the answer.
        table: blocks that they hold.
    """

    name: str
    guest: Guest
    number: int
    rank: tuple[float, int]
    solo: list[int]
    state: str = "away"
    computed: int = 0
    got: int = 0
    table: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens that they have: prompt and answer so far."""
        return self.guest.prompt_len + self.got

    @property
    def missing(self) -> int:
        """Tokens that have not been computed."""
        return self.length - self.computed


@dataclass(frozen=True)
class Moment:
    """A step, decided.

    Attributes:
        step: its number, from 0.
        slices: tokens computed for each.
        missing: tokens that each lacked who was in the house, before the step.
        lengths: tokens that they had.
        before: who ran before it,
        running: who runs in it, with their block tables,
        waiting: and who waits.
        preempted: who lost their blocks to it.
        free: blocks that nobody holds.
        sampled: who gets a token from it.
    """

    step: int
    slices: Mapping[str, int]
    missing: Mapping[str, int]
    lengths: Mapping[str, int]
    before: tuple[str, ...]
    running: Mapping[str, list[int]]
    waiting: tuple[str, ...]
    preempted: tuple[str, ...]
    free: int
    sampled: frozenset[str]

    @property
    def admitted(self) -> list[str]:
        """Who came in with it."""
        return [name for name in self.running if name not in self.before]


class Service:
    """A case being replayed: everybody's row, and the steps so far."""

    def __init__(self, case: Case) -> None:
        self.case = case
        ageing = case["ageing"]
        self.rows = {
            (name := name_of(number)): Row(
                name, guest, number, _rank(number, guest, ageing), answer_alone(number, guest)
            )
            for number, guest in enumerate(case["guests"])
        }
        self.moments: list[Moment] = []

    def fail(
        self, message: str, *, step: int | None = None, expected: Any = ..., got: Any = ...
    ) -> CheckFailed:
        """The error for a step: the last one by default."""
        at = len(self.moments) - 1 if step is None else step
        drawn = Timetable(self.moments[: at + 1], list(self.rows)) if self.moments else None
        return CheckFailed(f"step {at}: {message}", expected=expected, got=got, drawing=drawn)

    def those(self, *states: str) -> list[Row]:
        """Rows in some state, in order of rank."""
        found = (row for row in self.rows.values() if row.state in states)
        return sorted(found, key=lambda row: row.rank)

    @property
    def preemptions(self) -> int:
        """How often somebody lost their blocks."""
        return sum(len(moment.preempted) for moment in self.moments)


def _rank(number: int, guest: Guest, ageing: float | None) -> tuple[float, int]:
    if ageing is None:
        return number, number
    return Priority(ageing).rank(request_of(number, guest), number), number


def listed(names: Iterable[str]) -> str:
    """`Ada`, `Ada and Bo`, or `Ada, Bo and 3 others`."""
    all_names = list(names)
    if len(all_names) > 3:
        return f"{', '.join(all_names[:2])} and {len(all_names) - 2} others"
    *first, last = all_names or ["nobody"]
    return f"{', '.join(first)} and {last}" if first else last
