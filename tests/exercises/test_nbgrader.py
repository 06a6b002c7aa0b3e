"""nbgrader's own command line, with the repository's settings, for a class of four."""

import csv
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from minillm_serve.course.exercises.grading import grade
from minillm_serve.course.exercises.program import grading_of
from minillm_serve.course.exercises.registry import load
from tests.exercises.class_room import (
    Notebook,
    answered,
    released,
    save,
    solution,
    with_cell,
)
from tests.house.tree import ROOT

EX01 = load("ex01")
PARTS = [part.id for part in EX01.parts]
NOTES = dict.fromkeys(("ben", "cem"), "Which numbers these are is not told.")
NOTES["dan"] = "the code ended the whole process"
SEED = "the-autumn-of-this-test"
CONFIG = ROOT / "minillm_serve" / "course" / "exercises" / "nbgrader_config"


def nbgrader(course: Path, *arguments: str) -> str:
    """Runs one of its commands in the course's folder; returns what it logs."""
    settings = f"--JupyterApp.config_file={CONFIG}"
    jupyter = {name: str(course.parent / name) for name in ("JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments, settings],
        cwd=course,
        env={**os.environ, **jupyter},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def tampered() -> Notebook:
    """Nothing solved, but checks rewritten, one deleted, points raised, and an exit."""
    notebook = released(EX01)
    cells = {grading_of(cell).get("grade_id"): cell for cell in notebook["cells"]}
    cells["ex01-bytes"]["source"] = "99.0"
    cells["ex01-budget"]["source"] = "print('3 of 3 points')"
    cells["ex01-sequence"]["metadata"]["nbgrader"]["points"] = 99
    notebook["cells"].remove(cells["ex01-hidden"])
    return with_cell(notebook, "import os\nos._exit(0)")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course that was released, handed in, collected, graded and given back."""
    course = tmp_path_factory.mktemp("class") / "course"
    save(solution(EX01), course / "solutions" / EX01.folder / "ex01.ipynb")
    handed_in = course / ".grading" / "downloaded" / EX01.folder / "archive"
    save(answered(EX01, *PARTS), handed_in / "ada" / "ex01.ipynb")
    save(answered(EX01, "bytes", "budget"), handed_in / "ben" / "ex01.ipynb")
    blank = save(released(EX01), course.parent / "ex01.ipynb")
    with zipfile.ZipFile(handed_in / "cem.zip", "w") as archive:
        archive.write(blank, "ex01.ipynb")
    save(tampered(), handed_in / "dan" / "ex01.ipynb")
    (course / ".grading" / "seed").write_text(SEED)
    nbgrader(course, "generate_assignment", EX01.folder)
    nbgrader(course, "zip_collect", EX01.folder)
    nbgrader(course, "autograde", EX01.folder)
    nbgrader(course, "generate_feedback", EX01.folder)
    nbgrader(course, "export", "--to=scores.csv")
    return course


def test_it_releases_the_same_bytes_as_ours(course: Path) -> None:
    made = course / "exercises" / EX01.folder / "ex01.ipynb"
    committed = ROOT / "exercises" / EX01.folder / "ex01.ipynb"
    assert made.read_bytes() == committed.read_bytes()


def test_b149_right_half_right_blank_and_tampered_get_the_points_that_they_earned(
    course: Path,
) -> None:
    rows = list(csv.DictReader((course / "scores.csv").open(encoding="utf-8")))
    scores = {row["student_id"]: float(row["score"]) for row in rows}
    # Two points more are for the written answer, which a person grades.
    assert scores == {"ada": 18, "ben": 7 + 3.5, "cem": 0, "dan": 0}
    assert {float(row["max_score"]) for row in rows} == {20}
    assert {row["assignment"] for row in rows} == {EX01.folder}


def test_it_gives_what_our_own_command_gives(course: Path) -> None:
    own = grade(EX01, answered(EX01, "bytes", "budget"), SEED)
    assert own.earned == 10.5


def test_b148_the_feedback_of_a_failing_answer_gives_no_hidden_case_and_no_seed_away(
    course: Path,
) -> None:
    for student in ("ben", "cem", "dan"):
        page = (course / ".grading/feedback" / student / EX01.folder / "ex01.html").read_text()
        assert SEED not in page
        assert "ex01-hidden: the same checks, other numbers" in page
        hidden = page[page.index("ex01-hidden: the same checks") :]
        ticks, _, note = hidden.partition("</ul>")
        assert note.startswith(f"<p>{NOTES[student]}")
        assert ticks.count("✗") == {"ben": 5, "cem": 12, "dan": 12}[student]
        assert not re.search(r"expected|case|got|N=\d|Traceback", ticks)
        assert "kept = [" not in page, "a line of the solution"


def test_everything_but_sources_and_releases_lies_where_git_ignores_it(course: Path) -> None:
    assert {path.name for path in course.iterdir()} == {
        "solutions",
        "exercises",
        ".grading",
        "scores.csv",
    }
    assert ".grading/" in (ROOT / ".gitignore").read_text().splitlines()
