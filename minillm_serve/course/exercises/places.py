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
        found = (folder / place for place in ("exercises", "solutions"))
        if any(path.is_dir() for place in found for path in place.glob("ex[0-9][0-9]_*")):
            return folder
    raise ValueError(
        f"no exercises in {here} or above: they come with the repository; clone it and go there"
    )


def notebook_of(root: Path, exercise: Exercise) -> Path:
    """The notebook that a learner works in."""
    return root / "exercises" / exercise.folder / f"{exercise.id}.ipynb"


def private_seed(root: Path) -> str:
    """What `.grading/seed` holds, or the default, which anybody can read in the source.

    Raises:
        ValueError: the file is empty.
    """
    file = root / WORK / "seed"
    if not file.is_file():
        return DEFAULT_SEED
    if seed := file.read_text(encoding="utf-8").strip():
        return seed
    raise ValueError(f"{file} is empty: write a seed into it, or remove it")
