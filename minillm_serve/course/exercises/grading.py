"""A grade: a learner's program, run in a process of its own and judged in this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minillm_serve.course.exercises import sandbox
from minillm_serve.course.exercises.exercise import CheckFailed, Exercise
from minillm_serve.course.exercises.judging import PUBLIC_SEED, Evidence, judge_part
from minillm_serve.course.exercises.program import NotebookError, program, read_notebook
from minillm_serve.course.exercises.score import PartScore, Score, Tick

#: The grader's cases for whoever has set no seed. Anybody can read it here, so it is not secret.
DEFAULT_SEED = "hidden"
_UNTOLD = "Which numbers these are is not told."


@dataclass(frozen=True)
class Grade:
    """What one notebook has earned.

    Attributes:
        exercise: that it answers.
        parts: the cases that the learner sees.
        hidden: the grader's cases; None if they were not asked.
        problem: why everything counts nothing, or "".
        cell_errors: exceptions of cells.
        output: the end of what the code printed.
    """

    exercise: Exercise
    parts: tuple[PartScore, ...]
    hidden: Score | None
    problem: str = ""
    cell_errors: tuple[str, ...] = ()
    output: str = ""

    @property
    def earned(self) -> float:
        """Points of all."""
        return sum(part.earned for part in self.parts) + float(self.hidden or 0)

    @property
    def possible(self) -> float:
        """Points that could be earned of what was asked."""
        hidden = self.exercise.hidden_points if self.hidden is not None else 0
        return sum(part.points for part in self.exercise.parts) + hidden

    @property
    def untouched(self) -> bool:
        """Whether every part is still the stub that was released."""
        return not self.problem and all(part.unwritten for part in self.parts)

    def scores(self) -> list[Score]:
        """What to show: a score a part, and the hidden one."""
        shown = [Score.of_part(part) for part in self.parts]
        return [*shown, self.hidden] if self.hidden is not None else shown


def grade(exercise: Exercise, notebook: Mapping[str, Any], hidden_seed: str | None = None) -> Grade:
    """Grades a notebook.

    Args:
        exercise: that it answers.
        notebook: as JSON, or as read by nbformat.
        hidden_seed: asks the hidden cases of this seed too.
    """
    seeds = [PUBLIC_SEED] if hidden_seed is None else [PUBLIC_SEED, f"hidden/{hidden_seed}"]
    sources = program(notebook)
    outcome = sandbox.run(exercise, sources, seeds)
    problem = outcome.problem or _of_another(exercise, sources)
    hidden = None
    if hidden_seed is not None:
        found = outcome.evidence.get(seeds[-1], {})
        hidden = hidden_score(exercise, seeds[-1], found, note=problem)
    return Grade(
        exercise,
        _parts(exercise, outcome.evidence.get(PUBLIC_SEED, {})),
        hidden,
        problem,
        tuple(outcome.cell_errors),
        outcome.output,
    )


def grade_file(exercise: Exercise, path: Path, hidden_seed: str | None = None) -> Grade:
    """The same for a file; one that cannot be read scores nothing, and says why."""
    try:
        notebook = read_notebook(path)
    except NotebookError as error:
        hidden = None
        if hidden_seed is not None:
            hidden = hidden_score(exercise, hidden_seed, {}, note=str(error))
        return Grade(exercise, _parts(exercise, {}), hidden, str(error))
    return grade(exercise, notebook, hidden_seed)


def _of_another(exercise: Exercise, sources: Sequence[str]) -> str:
    """What to say of a notebook that names nothing which the exercise asks for; else ""."""
    asked = [part.answer for part in exercise.parts]
    if any(name in source for name in asked for source in sources):
        return ""
    return f"the notebook has no {' and no '.join(asked)}: is it {exercise.id}'s?"


def _parts(exercise: Exercise, found: Evidence) -> tuple[PartScore, ...]:
    return tuple(
        judge_part(exercise, part, PUBLIC_SEED, found.get(part.id, {})) for part in exercise.parts
    )


def hidden_score(exercise: Exercise, seed: str, found: Evidence, *, note: str = "") -> Score:
    """The hidden cases as one score that gives none of them away.

    It is the share of all points that were earned on them, in cents of a point.
    """
    parts = [judge_part(exercise, part, seed, found.get(part.id, {})) for part in exercise.parts]
    share = sum(part.earned for part in parts) / sum(part.points for part in exercise.parts)
    ticks = [
        replace(
            _untold(tick), name=f"{one.part.answer}: {tick.name}", points=_worth(exercise, tick)
        )
        for one in parts
        for tick in one.ticks
    ]
    return Score(
        round(share * exercise.hidden_points, 2),
        title=f"{exercise.id}-hidden: the same checks, other numbers",
        possible=exercise.hidden_points,
        ticks=ticks,
        note=note or _UNTOLD,
    )


def _worth(exercise: Exercise, tick: Tick) -> float:
    total = sum(part.points for part in exercise.parts)
    return round(tick.points / total * exercise.hidden_points, 2)


def _untold(tick: Tick) -> Tick:
    if tick.failure is None:
        return tick
    return Tick(tick.name, tick.points, CheckFailed(""))
