"""What the process that runs a learner's code is told: a program, and questions about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minillm_serve.course.exercises.exercise import Case, Limits


@dataclass(frozen=True)
class Question:
    """One check to gather evidence for.

    Attributes:
        key: what the evidence is sent back under.
        answer: the name that the learner's code binds.
        run: the check's own `run`.
        cases: its inputs.
    """

    key: str
    answer: str
    run: Callable[[Any, Case], Any]
    cases: list[Case]


@dataclass(frozen=True)
class Job:
    """Everything that the process is told.

    Attributes:
        cells: sources of the learner's cells.
        questions: asked after they have run.
        limits: of the whole.
    """

    cells: list[str]
    questions: list[Question]
    limits: Limits
