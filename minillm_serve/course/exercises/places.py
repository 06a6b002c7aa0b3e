"""Where the exercises lie."""

from __future__ import annotations

from pathlib import Path

from minillm_serve.course.exercises.exercise import Exercise
from minillm_serve.course.exercises.grading import DEFAULT_SEED

#: Whatever is a grader's own: seed, gradebook, submissions, feedback. Git ignores it.
WORK = ".grading"


def find_root(start: Path | None = None) -> Path:
    """The folder that holds `exercises/`: here, above, or where the package was cloned to.

    Raises:
        ValueError: there is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if any((folder / "solutions").glob("ex[0-9][0-9]_*")):
            return folder
    raise ValueError(
        f"no exercises in {here} or above: they come with the repository; clone it and go there"
    )


def notebook_of(root: Path, exercise: Exercise) -> Path:
    """The notebook that a learner works in."""
    return root / "exercises" / exercise.folder / f"{exercise.id}.ipynb"


def private_seed(root: Path) -> str:
    """What `.grading/seed` holds, or the default, which anybody can read in the source."""
    file = root / WORK / "seed"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else DEFAULT_SEED
