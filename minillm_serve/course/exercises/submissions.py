"""Submissions of a class: whose notebook lies where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minillm_serve.course.exercises.exercise import Exercise


@dataclass(frozen=True)
class Submission:
    """One learner's notebook.

    Attributes:
        student: the name of their folder, or the file as it was named.
        path: of the notebook, which need not exist.
    """

    student: str
    path: Path


def find_submissions(place: Path, exercise: Exercise) -> list[Submission]:
    """One for each folder of a student, also for who handed nothing in, by name.

    A student's notebook is `ex01.ipynb`, in their folder or anywhere below; the shallowest counts.

    Args:
        place: a folder of students' folders, or one notebook.
        exercise: that they answer.

    Raises:
        ValueError: there is no such folder or file, or no student in it.
    """
    if place.is_file():
        return [Submission(str(place), place)]
    if not place.is_dir():
        raise ValueError(
            f"there is no folder and no notebook {place}: give a folder of submissions, or one "
            "notebook"
        )
    students = sorted(
        path for path in place.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not students:
        raise ValueError(
            f"{place} holds no submissions: they are expected as STUDENT/{exercise.id}.ipynb or "
            f"STUDENT/{exercise.folder}/{exercise.id}.ipynb"
        )
    return [Submission(student.name, _notebook(student, exercise)) for student in students]


def _notebook(student: Path, exercise: Exercise) -> Path:
    name = f"{exercise.id}.ipynb"
    found = [path for path in student.rglob(name) if ".ipynb_checkpoints" not in path.parts]
    return min(found, key=lambda path: (len(path.parts), path), default=student / name)
