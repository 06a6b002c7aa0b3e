"""What an exercise is: parts that a learner writes, checks that judge them, hints.

Evidence and judgement are two steps, and that is what makes a score worth something. `Check.run`
works with the learner's code, in the learner's process, and returns plain data. `Check.expected`
and `Check.judge` work with that data alone, in a process that never runs the learner's code: a
checker that the learner has patched is one that nobody asks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

#: Keyword arguments for the learner's code. Never what it should return: learners could read it.
Case = dict[str, Any]

GIB = 2**30


class Drawing(Protocol):
    """A picture of what went wrong."""

    def text(self) -> str:
        """For a terminal: a few lines."""
        ...

    def html(self) -> str:
        """For a notebook."""
        ...


class CheckFailed(Exception):
    """An answer is wrong.

    Attributes:
        message: what is wrong, and if it is known, the mistake that leads there.
        index: where the first difference lies, such as ``"[3][0]"``; "" for the whole.
        expected: the right value there; `UNTOLD` to show none.
        got: the learner's.
        drawing: what was read, or when who ran, where that tells more.
    """

    def __init__(
        self,
        message: str,
        *,
        index: str = "",
        expected: Any = ...,
        got: Any = ...,
        drawing: Drawing | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.index = message, index
        self.expected, self.got, self.drawing = expected, got, drawing


class NotWritten(CheckFailed):
    """The answer is still the stub that was released."""


@dataclass(frozen=True)
class Raised:
    """Evidence that the learner's code raised an exception.

    Attributes:
        type: the exception's class name.
        message: its text.
        line: line of the learner's cell where it happened, 0 if unknown.
    """

    type: str
    message: str
    line: int = 0


@dataclass(frozen=True)
class Raises:
    """Expected: the answer refuses.

    Attributes:
        type: the exception's class.
        mentions: texts that its message must hold.
    """

    type: type[Exception]
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opaque:
    """Evidence that is no plain data: equal to nothing that is expected.

    Attributes:
        type: the class of what was returned.
        text: its repr, shortened.
    """

    type: str
    text: str


def call(answer: Any, case: Case) -> Any:
    """The usual evidence: what the answer returns."""
    return answer(**case)


@dataclass(frozen=True)
class Check:
    """One statement that is true of a right answer.

    Attributes:
        name: the statement, as it stands beside the tick.
        points: what it is worth; all of it, or nothing.
        cases: makes the inputs from a seeded generator, the smallest first.
        run: the learner's side, see the module's docstring; a function of a module, no lambda, for
            it is pickled.
        expected: the right evidence for a case, or a `Raises`.
        judge: instead of `expected`, raises `CheckFailed` if the evidence is wrong.
        rtol, atol: allowed relative and absolute error of floats and arrays.
        explain: names the mistake behind a wrong value, or returns None.
        describe: a case in one line; by default its names and values.
    """

    name: str
    points: float
    cases: Callable[[random.Random], Sequence[Case]]
    run: Callable[[Any, Case], Any] = call
    expected: Callable[[Case], Any] | None = None
    judge: Callable[[Case, Any], None] | None = None
    rtol: float = 0.0
    atol: float = 0.0
    explain: Callable[[Case, Any, Any], str | None] | None = None
    describe: Callable[[Case], str] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if there is not exactly one way to judge, or no points."""
        if (self.expected is None) == (self.judge is None):
            raise ValueError(f"check {self.name!r}: give one of expected= and judge=")
        if self.points <= 0:
            raise ValueError(f"check {self.name!r}: points={self.points} must be above 0")


@dataclass(frozen=True)
class Part:
    """What a learner writes in one cell.

    Attributes:
        id: short name, unique in its exercise.
        answer: the name that the learner's code binds: a function or a class.
        checks: judged in order.
        hints: from vague to nearly the answer.
    """

    id: str
    answer: str
    checks: tuple[Check, ...]
    hints: tuple[str, ...]

    @property
    def points(self) -> float:
        """What all checks together are worth."""
        return sum(check.points for check in self.checks)


@dataclass(frozen=True)
class Limits:
    """What one grading run of an exercise may take.

    Attributes:
        seconds: wall clock, and processor time of one core.
        memory: bytes on top of what the imports take.
    """

    seconds: float = 20.0
    memory: int = 2 * GIB


@dataclass(frozen=True)
class Exercise:
    """A notebook of parts.

    Attributes:
        id: such as ``"ex01"``.
        name: the rest of its folder's name, ``"kv_budget"``.
        title: as learners see it.
        chapter: number of the chapter that it belongs to, ``"01"``.
        parts: in the notebook's order.
        slot: the part of the engine that it fills, None if it fills none.
        hidden_points: for the same checks on cases that only the grader knows.
        limits: of a grading run.
    """

    id: str
    name: str
    title: str
    chapter: str
    parts: tuple[Part, ...]
    slot: str | None = None
    hidden_points: float = 0.0
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        """Raises ValueError if two parts, or two checks of a part, have one name."""
        names = [part.id for part in self.parts]
        names += [f"{part.id}: {check.name}" for part in self.parts for check in part.checks]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"{self.id} has more than one {sorted(repeated)}: rename them")

    @property
    def folder(self) -> str:
        """Name of its folder under `solutions/` and `exercises/`; nbgrader's assignment."""
        return f"{self.id}_{self.name}"

    @property
    def points(self) -> float:
        """What is scored by itself: all parts and the hidden cases."""
        return sum(part.points for part in self.parts) + self.hidden_points

    def part(self, name: str) -> Part:
        """The part with this id.

        Raises:
            ValueError: there is none.
        """
        for part in self.parts:
            if part.id == name:
                return part
        known = ", ".join(f"{self.id}-{part.id}" for part in self.parts)
        if not name:
            raise ValueError(f"which part of {self.id}? There are {known}")
        raise ValueError(f"{self.id} has no part {name!r}: there are {known}")

    def named(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Part id -> the learner's answer to it, for those that `answers` holds."""
        return {part.id: answers[part.answer] for part in self.parts if part.answer in answers}
