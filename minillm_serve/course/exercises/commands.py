"""`minillm-serve exercises`: check, hints, progress and grades without opening a notebook."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from minillm_serve.course.exercises import places, registry
from minillm_serve.course.exercises.exercise import Exercise
from minillm_serve.course.exercises.grading import DEFAULT_SEED, Grade, grade_file
from minillm_serve.course.exercises.hints import Hint
from minillm_serve.course.exercises.program import read_notebook
from minillm_serve.course.exercises.submissions import Submission, find_submissions


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 if all is well, 1 if points are missing, 2 for options that do not parse.

    Raises:
        ValueError: there is no such exercise, part, hint, notebook or folder.
    """
    args = _parse(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="minillm-serve exercises", description="The course's graded exercises."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], line: str
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=line, description=line)
        made.set_defaults(run=run)
        return made

    checked = command("check", _check, "run the checks that you see on your notebook")
    checked.add_argument("exercise", help="such as ex01")
    hinted = command("hint", _hint, "show a hint")
    hinted.add_argument("part", help="such as ex01-bytes")
    hinted.add_argument("number", type=int, nargs="?", default=1, help="which hint (the first)")
    command("status", _status, "list all exercises and what you have earned")
    reset = command("reset", _reset, "put the released notebook back (yours is kept beside it)")
    reset.add_argument("exercise", help="such as ex01")
    graded = command("grade", _grade, "grade a notebook, or a folder of submissions")
    graded.add_argument("exercise", help="such as ex01")
    graded.add_argument(
        "place", type=Path, nargs="?", help="a notebook, or submissions: STUDENT/.../ex01.ipynb"
    )
    graded.add_argument("--seed", help="of the hidden cases (else .grading/seed, or the default)")
    graded.add_argument("--csv", type=Path, help="write the scores to this file")
    return parser.parse_args(argv)


def _own(exercise: Exercise, hidden_seed: str | None = None) -> Grade:
    root = places.find_root()
    return grade_file(exercise, places.notebook_of(root, exercise), hidden_seed)


def _show(grade: Grade) -> None:
    if grade.problem:
        print(f"! {grade.problem}")
    for score in grade.scores():
        print(score.text, end="\n\n")
    for error in grade.cell_errors:
        print(f"! a cell raised {error}")
    if grade.output.strip():
        print("What your code printed, the end of it:", grade.output.rstrip(), sep="\n")
    print(f"{grade.exercise.folder}: {grade.earned:g} of {grade.possible:g} points")


def _check(args: argparse.Namespace) -> int:
    grade = _own(registry.load(args.exercise))
    _show(grade)
    return 0 if grade.earned == grade.possible else 1


def _hint(args: argparse.Namespace) -> int:
    exercise, part = registry.find(args.part)
    print(Hint(f"{exercise.id}-{part.id}", part.hints, args.number).for_shell())
    return 0


def _status(args: argparse.Namespace) -> int:
    print(f"{'exercise':<28} {'points':>8}  what is next")
    for exercise in registry.all_exercises():
        grade = _own(exercise)
        print(f"{exercise.folder:<28} {grade.earned:>3g}/{grade.possible:<4g}  {_next(grade)}")
    return 0


def _next(grade: Grade) -> str:
    if grade.problem:
        return grade.problem
    if grade.untouched:
        return f"not begun (chapter {grade.exercise.chapter})"
    for part in grade.parts:
        for tick in part.ticks:
            if tick.failure:
                return f"{part.part.answer}: {tick.name}"
    return "done" if grade.exercise.slot is None else f"done: fills slot {grade.exercise.slot}"


def _reset(args: argparse.Namespace) -> int:
    from minillm_serve.course.exercises.release import released  # nbgrader takes seconds to import

    exercise, root = registry.load(args.exercise), places.find_root()
    path = places.notebook_of(root, exercise)
    if not (root / "solutions" / exercise.folder).is_dir():
        raise ValueError(
            f"{exercise.id} is released from solutions/{exercise.folder}, which is not in {root}: "
            "take the notebook from the repository again"
        )
    fresh = released(root, exercise.folder)[path.name]
    if path.is_file() and path.read_bytes() != fresh:
        kept = next(name for name in _backups(path) if not name.exists())
        path.replace(kept)
        print(f"yours is kept as {kept.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(fresh)
    print(f"{exercise.folder} is as it was released")
    return 0


def _backups(path: Path) -> Iterator[Path]:
    """Names to keep a notebook under; one that is kept already is never written over."""
    yield path.with_name(f"{path.name}.bak")
    for number in count(2):
        yield path.with_name(f"{path.name}.bak{number}")


def _grade(args: argparse.Namespace) -> int:
    exercise, root = registry.load(args.exercise), places.find_root()
    seed = args.seed or places.private_seed(root)
    if args.csv is not None and not args.csv.resolve().parent.is_dir():
        raise ValueError(f"--csv {args.csv}: there is no folder {args.csv.resolve().parent}")
    if args.place is None:
        submissions = [Submission("you", places.notebook_of(root, exercise))]
    else:
        submissions = find_submissions(args.place, exercise)
        if args.place.is_file():
            read_notebook(args.place)  # a file that is none is an error, not a grade of 0
        if seed == DEFAULT_SEED:
            print("hidden cases are the public ones: put a seed in .grading/seed", file=sys.stderr)
    grades = [(one.student, grade_file(exercise, one.path, seed)) for one in submissions]
    if args.place is None or args.place.is_file():
        _show(grades[0][1])
    else:
        for student, grade in grades:
            print(f"{student:<28} {grade.earned:>5g}/{grade.possible:<5g} {grade.problem}")
    if args.csv is not None:
        write_csv(args.csv, exercise, grades)
        print(f"{len(grades)} scores in {args.csv}", file=sys.stderr)
    return 0


def write_csv(path: Path, exercise: Exercise, grades: Sequence[tuple[str, Grade]]) -> None:
    """One line a student: the parts, the hidden cases, the sum, and why, if it counts nothing."""
    parts = [f"{exercise.id}-{part.id}" for part in exercise.parts]
    header = [
        "student",
        "exercise",
        *parts,
        f"{exercise.id}-hidden",
        "score",
        "possible",
        "problem",
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for student, grade in grades:
            earned = [f"{part.earned:g}" for part in grade.parts]
            total = [f"{float(grade.hidden or 0):g}", f"{grade.earned:g}", f"{grade.possible:g}"]
            writer.writerow([student, exercise.folder, *earned, *total, grade.problem])
