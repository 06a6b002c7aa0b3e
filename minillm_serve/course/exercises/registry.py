"""The exercises that there are: every module of this package called `exNN_name`."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from minillm_serve.course.exercises.exercise import Exercise, Part

_MODULE = re.compile(r"(ex\d\d)_\w+")


def exercise_modules() -> dict[str, str]:
    """Exercise id -> the module that defines it, by number."""
    stems = sorted(path.stem for path in Path(__file__).parent.glob("ex[0-9][0-9]_*.py"))
    return {hit[1]: f"{__package__}.{stem}" for stem in stems if (hit := _MODULE.fullmatch(stem))}


def load(exercise_id: str) -> Exercise:
    """The exercise with an id such as ``"ex01"``; a folder's name does too.

    Raises:
        ValueError: there is none.
    """
    modules = exercise_modules()
    hit = _MODULE.fullmatch(exercise_id)
    wanted = hit[1] if hit else exercise_id
    if wanted not in modules:
        raise ValueError(f"no exercise {exercise_id!r}: there are {', '.join(modules)}")
    exercise: Exercise = import_module(modules[wanted]).EXERCISE
    return exercise


def all_exercises() -> list[Exercise]:
    """Every exercise, by number."""
    return [load(name) for name in exercise_modules()]


def find(name: str) -> tuple[Exercise, Part]:
    """The exercise and part called ``"ex01-bytes"``; ``"ex01"`` will do where there is one part.

    Raises:
        ValueError: there is no such exercise or part, or the part must be said.
    """
    exercise_id, _, part_id = name.partition("-")
    exercise = load(exercise_id)
    if not part_id and len(exercise.parts) == 1:
        return exercise, exercise.parts[0]
    return exercise, exercise.part(part_id)
