"""Submissions of a class: whose notebook lies where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minillm_serve.course.exercises.exercise import Exercise


@dataclass(frozen=True)
class Submission:
    """One learner's notebook.

    Attributes:
        student: the name of their folder.
        path: of the notebook, which need not exist.
    """

    student: str
    path: Path


def find_submissions(folder: Path, exercise: Exercise) -> list[Submission]:
    """One for each folder of a student, also for who handed nothing in, by name.

    A student's notebook is `ex01.ipynb`, in their folder or anywhere below; the shallowest counts.

    Raises:
        ValueError: there is no such folder, or no student in it.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    students = sorted(
        path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not students:
        raise ValueError(
            f"{folder} holds no submissions: they are expected as STUDENT/{exercise.id}.ipynb or "
            f"STUDENT/{exercise.folder}/{exercise.id}.ipynb"
        )
    return [Submission(student.name, _notebook(student, exercise)) for student in students]


def _notebook(student: Path, exercise: Exercise) -> Path:
    name = f"{exercise.id}.ipynb"
    found = [path for path in student.rglob(name) if ".ipynb_checkpoints" not in path.parts]
    return min(found, key=lambda path: (len(path.parts), path), default=student / name)
