"""Releases: what stands in place of a solution, and what must not travel with it."""

import json
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minillm_serve.course.exercises.release import released
from minillm_serve.course.exercises.stubs import TEXT_STUB, stubbed
from tests.exercises.class_room import save

SOLUTION = '''def area(w, h):
    """The area."""
    ### BEGIN SOLUTION: return the area of the rectangle
    return w * h
    ### END SOLUTION


class Square:
    def side(self):
        ### BEGIN SOLUTION: return the side
        return 1
        ### END SOLUTION'''


def test_b151_a_stub_stands_where_the_solution_was_as_far_indented() -> None:
    assert stubbed(SOLUTION).splitlines() == [
        "def area(w, h):",
        '    """The area."""',
        "    # YOUR CODE HERE",
        '    raise NotImplementedError("return the area of the rectangle")',
        "",
        "",
        "class Square:",
        "    def side(self):",
        "        # YOUR CODE HERE",
        '        raise NotImplementedError("return the side")',
    ]


def cell_of(kind: str, source: str, grade_id: str, **grading: Any) -> Any:
    """A cell with nbgrader's metadata."""
    meta = {"grade_id": grade_id, "schema_version": 3, "task": False, "cell_type": kind, **grading}
    make = new_code_cell if kind == "code" else new_markdown_cell
    return make(source, id=grade_id, metadata={"nbgrader": meta})


ANSWER = {"grade": False, "solution": True, "locked": False}
CHECK = {"grade": True, "solution": False, "locked": True, "points": 1}
TEXT = {"grade": True, "solution": True, "locked": False, "points": 1}


def course(folder: Path, *cells: Any, **metadata: Any) -> Path:
    """A course of one exercise with these cells."""
    notebook = new_notebook(cells=list(cells), metadata=metadata)
    save(notebook, folder / "solutions" / "ex01_x" / "ex01.ipynb")
    return folder


def release(folder: Path) -> Any:
    """Its release."""
    return json.loads(released(folder, "ex01_x")["ex01.ipynb"])


def test_b148_widgets_outputs_and_hidden_tests_do_not_leak(tmp_path: Path) -> None:
    hidden = "# Hidden.\n### BEGIN HIDDEN TESTS\nassert area(2, 3) == 6\n### END HIDDEN TESTS"
    cells = [
        cell_of("code", SOLUTION, "ex01-area-answer", **ANSWER),
        cell_of("code", hidden, "ex01-hidden", **CHECK),
        cell_of(
            "markdown",
            "Why?\n\n<!-- BEGIN SOLUTION -->\nBecause.\n<!-- END SOLUTION -->",
            "ex01-why",
            **TEXT,
        ),
        new_code_cell("area(3, 4)", id="shown"),
    ]
    cells[3]["outputs"] = [
        {"output_type": "execute_result", "data": {"text/plain": "12"}, "metadata": {}}
        | {"execution_count": 1}
    ]
    state = {"application/vnd.jupyter.widget-state+json": {"state": {"a": "w * h"}}}
    made = release(course(tmp_path, *cells, widgets=state))
    text = json.dumps(made)
    for secret in ("w * h", "area(2, 3)", "Because", "12", "widget"):
        assert secret not in text
    assert made["cells"][1]["source"] in ("# Hidden.", ["# Hidden."])
    assert TEXT_STUB in "".join(made["cells"][2]["source"])


REGIONS = {
    "without what to write": "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION",
    "without its end": "def f():\n    ### BEGIN SOLUTION: return 1\n    return 1",
    "nested": "### BEGIN SOLUTION: a\n### BEGIN SOLUTION: b\nx = 1\n### END SOLUTION\n"
    "### END SOLUTION\n### BEGIN SOLUTION\n",
}


@pytest.mark.parametrize("how", REGIONS)
def test_b151_a_malformed_region_is_refused(how: str, tmp_path: Path) -> None:
    cell = cell_of("code", REGIONS[how], "ex01-f-answer", **ANSWER)
    with pytest.raises(ValueError, match="nbgrader cannot release ex01_x"):
        release(course(tmp_path, cell))


def test_b151_a_solution_in_a_cell_that_is_not_marked_as_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Solution region detected in a non-solution cell"):
        release(course(tmp_path, new_code_cell(SOLUTION, id="plain")))


def test_b146_a_grade_id_that_is_used_twice_is_refused(tmp_path: Path) -> None:
    twice = [cell_of("code", "1", "ex01-area", **CHECK) for _ in range(2)]
    twice[1]["id"] = "another"
    with pytest.raises(ValueError, match="nbgrader cannot release ex01_x"):
        release(course(tmp_path, *twice))


def test_an_exercise_without_a_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no solutions/ex01_y"):
        released(tmp_path, "ex01_y")


def test_a_release_leaves_the_repository_as_it_was(tmp_path: Path) -> None:
    folder = course(tmp_path, cell_of("code", SOLUTION, "ex01-area-answer", **ANSWER))
    before = sorted(tmp_path.rglob("*"))
    assert release(folder)
    assert sorted(tmp_path.rglob("*")) == before
