"""From evidence to ticks: the trusted half of a check.

`gather` runs the learner's code and belongs where that code runs. `judge` sees evidence only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from minillm_serve.course.exercises.compare import Difference, first_difference
from minillm_serve.course.exercises.evidence import raised, shortened
from minillm_serve.course.exercises.exercise import (
    Case,
    Check,
    CheckFailed,
    Exercise,
    NotWritten,
    Opaque,
    Part,
    Raised,
    Raises,
)
from minillm_serve.course.exercises.score import PartScore, Tick, described

#: The cases that a learner sees. A grader's seed is another, and best a private one.
PUBLIC_SEED = "public"

#: part id -> check name -> one piece of evidence for each case
Evidence = Mapping[str, Mapping[str, list[Any]]]


def cases_of(exercise: Exercise, part: Part, check: Check, seed: str) -> list[Case]:
    """The cases of one check; the same seed makes the same ones on every machine."""
    rng = random.Random(f"{seed}/{exercise.id}/{part.id}/{check.name}")
    return list(check.cases(rng))


def gather(run: Callable[[Any, Case], Any], answer: Any, cases: list[Case]) -> list[Any]:
    """Runs the learner's code on every case. Its exceptions are evidence too."""
    found: list[Any] = []
    for case in cases:
        try:
            found.append(run(answer, case))
        except Exception as error:
            found.append(raised(error))
    return found


def judge_part(
    exercise: Exercise, part: Part, seed: str, found: Mapping[str, list[Any]]
) -> PartScore:
    """Ticks of one part; a check without evidence has failed."""
    ticks = []
    for check in part.checks:
        cases = cases_of(exercise, part, check, seed)
        ticks.append(_tick(check, cases, found.get(check.name, [])))
    return PartScore(exercise.id, part, tuple(ticks))


def _tick(check: Check, cases: list[Case], found: list[Any]) -> Tick:
    if len(found) != len(cases) or not cases:
        return Tick(check.name, check.points, CheckFailed("was not run"))
    for case, got in zip(cases, found, strict=True):
        try:
            judge(check, case, got)
        except CheckFailed as failure:
            describe = check.describe or described
            return Tick(check.name, check.points, failure, describe(case))
    return Tick(check.name, check.points, None)


def judge(check: Check, case: Case, got: Any) -> None:
    """One case.

    Raises:
        CheckFailed: the evidence is wrong.
    """
    if check.judge is not None:
        if isinstance(got, Raised):
            raise _unwanted(got)
        check.judge(case, got)
        return
    assert check.expected is not None  # a Check has one of the two
    expected = check.expected(case)
    if isinstance(expected, Raises):
        _judge_refusal(check, case, expected, got)
        return
    if isinstance(got, Raised):
        raise _unwanted(got)
    difference = first_difference(expected, got, rtol=check.rtol, atol=check.atol)
    if difference is None:
        return
    mistake = check.explain(case, expected, got) if check.explain is not None else None
    raise CheckFailed(
        mistake or _plainly(difference),
        index=difference.index,
        expected=difference.expected,
        got=difference.got,
    )


def _plainly(difference: Difference) -> str:
    if difference.got is None:
        return "it returned nothing: is there a `return`?"
    if isinstance(difference.got, Opaque):
        return f"it returned a {difference.got.type}, which cannot be compared"
    if isinstance(difference.expected, int) and isinstance(difference.got, float):
        return "a whole number was expected, an int, and this is a float"
    return "another value was expected"


def _unwanted(got: Raised) -> CheckFailed:
    if got.type == "NotImplementedError":
        return NotWritten(f"not written yet: {got.message}".rstrip(": "))
    where = f" (line {got.line} of your cell)" if got.line else ""
    return CheckFailed(f"it raised {got.type}: {shortened(got.message)}{where}")


def _judge_refusal(check: Check, case: Case, expected: Raises, got: Any) -> None:
    name = expected.type.__name__
    if not isinstance(got, Raised):
        mistake = check.explain(case, expected, got) if check.explain is not None else None
        said = mistake or f"this cannot work, and should be refused with a {name}"
        raise CheckFailed(said, expected=f"raise {name}", got=got)
    if got.type != name:
        raise _unwanted(got)
    for text in expected.mentions:
        if text not in got.message:
            raise CheckFailed(
                f"the refusal does not say {text}: a person who reads it should know which number "
                "to change",
                expected=f"a message with {text}",
                got=got.message,
            )
