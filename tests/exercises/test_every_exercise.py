"""The grader graded: every exercise lets right answers pass, and no wrong one.

An exercise that lies in the package is tested; nothing is to be added here.
"""

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from minillm_serve.course.exercises.exercise import Exercise
from minillm_serve.course.exercises.grading import grade
from minillm_serve.course.exercises.program import grading_of, program, source_of
from minillm_serve.course.exercises.registry import all_exercises
from minillm_serve.course.exercises.release import released as generate
from tests.exercises.class_room import (
    MARKS,
    Notebook,
    reason_of,
    released,
    solution,
    with_cell,
    wrong_answers,
)
from tests.house.tree import ROOT

EXERCISES = all_exercises()
WRONG = [(exercise, path) for exercise in EXERCISES for path in wrong_answers(exercise)]
SEED = "a seed of this test"

each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


def code(notebook: Notebook) -> list[str]:
    """Sources of the code cells."""
    return [source_of(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@each
def test_the_reference_scores_full(exercise: Exercise) -> None:
    graded = grade(exercise, solution(exercise), SEED)
    shown = "\n".join(score.text for score in graded.scores())
    assert (graded.earned, graded.problem, graded.cell_errors) == (exercise.points, "", ()), shown


@each
def test_b151_the_untouched_stub_scores_nothing_and_says_what_to_write(exercise: Exercise) -> None:
    graded = grade(exercise, released(exercise), SEED)
    assert (graded.earned, graded.problem, graded.cell_errors) == (0, "", ())
    assert graded.untouched
    for score in graded.scores()[: len(exercise.parts)]:
        assert re.search(r"^not written yet: \w+ \w+", score.text, re.MULTILINE), score.text


@pytest.mark.parametrize(
    ("exercise", "path"), WRONG, ids=[f"{one.id}-{path.stem}" for one, path in WRONG]
)
def test_a_wrong_answer_fails_with_its_reason(exercise: Exercise, path: Path) -> None:
    graded = grade(exercise, with_cell(solution(exercise), path.read_text("utf-8")), SEED)
    shown = "\n".join(score.text for score in graded.scores())
    assert graded.problem == ""
    assert sum(part.earned for part in graded.parts) < exercise.points - exercise.hidden_points
    assert reason_of(path) in shown
    if exercise.hidden_points:
        assert graded.hidden is not None
        assert graded.hidden < exercise.hidden_points, "the hidden cases let it pass"


@each
def test_there_are_four_wrong_answers_or_more_and_one_for_each_part(exercise: Exercise) -> None:
    files = wrong_answers(exercise)
    assert len(files) >= 4
    bound = {
        node.name
        for path in files
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    assert {part.answer for part in exercise.parts} <= bound


@each
def test_every_part_has_two_hints_or_more_and_no_hint_twice(exercise: Exercise) -> None:
    for part in exercise.parts:
        assert len(part.hints) >= 2
        assert len(set(part.hints)) == len(part.hints)


@each
def test_b146_the_graded_cells_are_the_exercises_parts_each_once(exercise: Exercise) -> None:
    found = [cell for cell in solution(exercise)["cells"] if grading_of(cell)]
    ids = Counter(grading_of(cell)["grade_id"] for cell in found)
    assert set(ids.values()) == {1}
    points = {
        grading_of(cell)["grade_id"]: grading_of(cell)["points"]
        for cell in found
        if grading_of(cell)["grade"] and cell["cell_type"] == "code"
    }
    wanted = {f"{exercise.id}-{part.id}": part.points for part in exercise.parts}
    if exercise.hidden_points:
        wanted[f"{exercise.id}-hidden"] = exercise.hidden_points
    assert points == wanted
    assert {f"{exercise.id}-{part.id}-answer" for part in exercise.parts} <= set(ids)


def test_b146_no_grade_id_is_used_by_two_exercises() -> None:
    ids = Counter(
        grading_of(cell)["grade_id"]
        for exercise in EXERCISES
        for cell in solution(exercise)["cells"]
        if grading_of(cell)
    )
    assert [name for name, count in ids.items() if count > 1] == []


@each
def test_the_committed_release_is_what_the_source_generates(exercise: Exercise) -> None:
    """If it fails: python -m minillm_serve.course.exercises.release (or `exercises reset`)."""
    folder = ROOT / "exercises" / exercise.folder
    assert generate(ROOT, exercise.folder) == {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".ipynb_checkpoints" not in path.parts and path.suffix != ".bak"
    }


@each
def test_b151_solving_replaces_the_stubs_and_nothing_else(exercise: Exercise) -> None:
    sources, stubs = code(solution(exercise)), code(released(exercise))
    assert len(sources) == len(stubs)
    for source, stub in zip(sources, stubs, strict=True):
        kept_of_source, regions = outside(source)
        kept_of_stub = re.sub(
            r'^( *)# YOUR CODE HERE\n\1raise NotImplementedError\("[^"\n]+"\)$',
            "<stub>",
            stub,
            flags=re.MULTILINE,
        )
        assert kept_of_stub == kept_of_source
        assert kept_of_stub.count("<stub>") == regions
        compile(stub, "stub", "exec")


def outside(source: str) -> tuple[str, int]:
    """A cell's source without its solutions and hidden tests, and how many solutions there were."""
    kept, inside, regions = [], "", 0
    for line in source.split("\n"):
        mark = MARKS.search(line)
        if mark is None:
            kept += [] if inside else [line]
        elif mark[1] == "BEGIN":
            assert not inside, "regions may not be nested"
            inside, regions = mark[2], regions + (mark[2] == "SOLUTION")
            kept += ["<stub>"] if mark[2] == "SOLUTION" else []
        else:
            assert inside == mark[2], "an end without its beginning"
            inside = ""
    assert not inside, "a region has no end"
    return "\n".join(kept), regions


@each
def test_b148_the_release_holds_no_solution_no_hidden_test_and_no_output(
    exercise: Exercise,
) -> None:
    release = released(exercise)
    text = json.dumps(release)
    assert not MARKS.search(text)
    assert "check_hidden(" not in text
    for solved in secrets(exercise):
        assert solved not in text
    for cell in release["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert set(release["metadata"]) == {"kernelspec", "language_info"}


def secrets(exercise: Exercise) -> list[str]:
    """Lines that stand in a solution and nowhere else in the source, as JSON holds them."""
    secret: list[str] = []
    public: list[str] = []
    for cell in solution(exercise)["cells"]:
        inside = False
        for line in source_of(cell).split("\n"):
            if mark := MARKS.search(line):
                inside = mark[1] == "BEGIN"
            elif line.strip():
                (secret if inside else public).append(json.dumps(line.strip())[1:-1])
    return [line for line in secret if len(line) > 12 and not any(line in one for one in public)]


@each
def test_there_is_something_secret_in_each_solution(exercise: Exercise) -> None:
    """Else the test before this one would look for nothing."""
    assert len(secrets(exercise)) >= len(exercise.parts)


@each
def test_the_grader_runs_no_check_and_no_demonstration(exercise: Exercise) -> None:
    run = "\n".join(program(solution(exercise)))
    assert "check(" not in run
    assert "LLM(" not in run
