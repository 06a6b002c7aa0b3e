"""Answers to hand in: the reference, wrong ones, and none."""

import ast
import copy
import json
import re
from pathlib import Path
from typing import Any

from minillm_serve.course.exercises.exercise import Exercise
from minillm_serve.course.exercises.program import grading_of, source_of
from tests.house.tree import ROOT

WRONG = Path(__file__).parent / "wrong"
#: What marks a solution or a hidden test in a source.
MARKS = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS)")

Notebook = dict[str, Any]


def solution(exercise: Exercise) -> Notebook:
    """The source, with the reference solution in it."""
    path = ROOT / "solutions" / exercise.folder / f"{exercise.id}.ipynb"
    return dict(json.loads(path.read_text("utf-8")))


def released(exercise: Exercise) -> Notebook:
    """What a learner starts from."""
    path = ROOT / "exercises" / exercise.folder / f"{exercise.id}.ipynb"
    return dict(json.loads(path.read_text("utf-8")))


def answered(exercise: Exercise, *parts: str) -> Notebook:
    """A released notebook in which these parts are solved as in the reference."""
    notebook = released(exercise)
    right = {grading_of(cell).get("grade_id"): cell for cell in solution(exercise)["cells"]}
    for cell in notebook["cells"]:
        grade_id = grading_of(cell).get("grade_id", "")
        if grade_id in {f"{exercise.id}-{part}-answer" for part in parts}:
            cell["source"] = source_of(right[grade_id])
    return notebook


def with_cell(notebook: Notebook, source: str) -> Notebook:
    """A copy with one more cell at the end."""
    changed = copy.deepcopy(notebook)
    cell = {"cell_type": "code", "id": "more", "metadata": {}, "source": source}
    changed["cells"].append({**cell, "outputs": [], "execution_count": None})
    return changed


def wrong_answers(exercise: Exercise) -> list[Path]:
    """Files that put a plausible mistake in place of the reference."""
    return sorted((WRONG / exercise.id).glob("*.py"))


def reason_of(path: Path) -> str:
    """The text by which a wrong answer must be refused."""
    said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    (reason,) = re.findall(r"^Reason: (.+)$", said, re.MULTILINE)
    return str(reason)


def save(notebook: Notebook, path: Path) -> Path:
    """Writes it, folders and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), "utf-8")
    return path
