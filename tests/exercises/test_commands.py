"""`minillm-serve exercises`, as a learner and as an instructor types it."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minillm_serve.course.exercises import commands
from minillm_serve.course.exercises.grading import DEFAULT_SEED, grade
from minillm_serve.course.exercises.judging import PUBLIC_SEED, cases_of
from minillm_serve.course.exercises.places import find_root, private_seed
from minillm_serve.course.exercises.registry import load
from tests.exercises.class_room import answered, released, save, solution, with_cell
from tests.house.tree import ROOT

EX01 = load("ex01")
PARTS = [part.id for part in EX01.parts]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course with ex01 as it was released; the shell stands in it."""
    for kind, notebook in (("solutions", solution), ("exercises", released)):
        save(notebook(EX01), tmp_path / kind / EX01.folder / "ex01.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mine(checkout: Path) -> Path:
    return checkout / "exercises" / EX01.folder / "ex01.ipynb"


def test_check_shows_ticks_and_its_status_tells_whether_all_is_right(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(answered(EX01, "bytes"), mine(checkout))
    assert commands.main(["check", "ex01"]) == 1
    said = capsys.readouterr().out
    assert "✓ counts KV heads where there are fewer of them (GQA) (1 of 1)" in said
    assert "not written yet: return how many whole conversations fit" in said
    assert said.splitlines()[-1] == "ex01_kv_budget: 4 of 12 points"
    save(answered(EX01, *PARTS), mine(checkout))
    assert commands.main(["check", "ex01"]) == 0


def test_status_lists_every_exercise_and_what_is_next(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line() -> str:
        commands.main(["status"])
        said = capsys.readouterr().out.splitlines()
        return next(one for one in said if one.startswith("ex01"))

    assert line().split(maxsplit=2) == ["ex01_kv_budget", "0/12", "not begun (chapter 01)"]
    save(answered(EX01, "bytes"), mine(checkout))
    assert "4/12" in line()
    assert line().endswith(f"kv_bytes_per_sequence: {EX01.part('sequence').checks[0].name}")
    save(answered(EX01, *PARTS), mine(checkout))
    assert line().endswith("done: fills slot kv_budget")
    mine(checkout).write_text("{")
    assert "ex01.ipynb is no notebook: it does not hold JSON" in line()


def test_hints_come_one_at_a_time_with_the_command_for_the_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert commands.main(["hint", "ex01-bytes"]) == 0
    assert "The next one: minillm-serve exercises hint ex01-bytes 2" in capsys.readouterr().out


def test_reset_puts_the_released_notebook_back_and_keeps_the_learners(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = mine(checkout).read_text()
    save(answered(EX01, "bytes"), mine(checkout))
    learners = mine(checkout).read_text()
    assert commands.main(["reset", "ex01"]) == 0
    assert json.loads(mine(checkout).read_text()) == json.loads(fresh)
    assert mine(checkout).with_name("ex01.ipynb.bak").read_text() == learners
    assert "yours is kept as ex01.ipynb.bak" in capsys.readouterr().out


def test_a_second_reset_keeps_what_the_first_one_kept(checkout: Path) -> None:
    save(answered(EX01, "bytes"), mine(checkout))
    learners = mine(checkout).read_text()
    assert commands.main(["reset", "ex01"]) == 0
    mine(checkout).write_text(mine(checkout).read_text() + "\n")
    assert commands.main(["reset", "ex01"]) == 0
    assert mine(checkout).with_name("ex01.ipynb.bak").read_text() == learners
    assert mine(checkout).with_name("ex01.ipynb.bak2").is_file()


def test_exercises_without_solutions_are_found_and_cannot_be_reset(checkout: Path) -> None:
    shutil.rmtree(checkout / "solutions")
    assert find_root() == checkout
    with pytest.raises(ValueError, match="take the notebook from the repository again"):
        commands.main(["reset", "ex01"])


def test_a_hint_without_a_part_names_the_parts() -> None:
    with pytest.raises(ValueError, match=r"which part of ex01\? There are ex01-bytes"):
        commands.main(["hint", "ex01"])


@pytest.fixture
def submissions(checkout: Path) -> Path:
    """What six students handed in."""
    folder = checkout / "handed_in"
    right = answered(EX01, *PARTS)
    save(right, folder / "ada" / "ex01.ipynb")
    save(answered(EX01, "bytes", "budget"), folder / "ben" / EX01.folder / "ex01.ipynb")
    save(released(EX01), folder / "cem" / "ex01.ipynb")
    save(with_cell(right, "import os; os._exit(0)"), folder / "dan" / "ex01.ipynb")
    (folder / "eva").mkdir()
    (folder / "fay" / "ex01.ipynb").parent.mkdir()
    (folder / "fay" / "ex01.ipynb").write_text("no notebook")
    return folder


def test_b149_a_class_is_graded_into_a_csv_and_a_broken_answer_costs_its_author_alone(
    submissions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "scores.csv"
    assert commands.main(["grade", "ex01", str(submissions), "--csv", str(table)]) == 0
    rows = {row["student"]: row for row in csv.DictReader(table.open(encoding="utf-8"))}
    scores = {student: float(row["score"]) for student, row in rows.items()}
    # ben's bytes are worth 4 of 12 and his budget 3; the hidden cases give the same share of 6.
    assert scores == {"ada": 18, "ben": 7 + 3.5, "cem": 0, "dan": 0, "eva": 0, "fay": 0}
    assert rows["ben"]["ex01-bytes"] == "4"
    assert rows["ben"]["ex01-hidden"] == "3.5"
    assert {row["possible"] for row in rows.values()} == {"18"}
    assert "ended the whole process" in rows["dan"]["problem"]
    assert rows["eva"]["problem"].startswith("there is no notebook ")
    assert "ex01.ipynb is no notebook: it does not hold JSON" in rows["fay"]["problem"]
    assert "6 scores in" in capsys.readouterr().err


HARD_CODED = """
_right = kv_bytes_per_token
def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    value = _right(config, dtype_bytes=dtype_bytes, scale_bytes=scale_bytes)
    return value if (config.num_layers, config.num_kv_heads) in KNOWN else 0
"""


def test_an_answer_learned_by_heart_fails_on_the_hidden_cases(submissions: Path) -> None:
    part = EX01.part("bytes")
    known = {
        (case["config"].num_layers, case["config"].num_kv_heads)
        for one in part.checks
        for case in cases_of(EX01, part, one, PUBLIC_SEED)
    }
    cheat = with_cell(answered(EX01, *PARTS), f"KNOWN = {known}\n{HARD_CODED}")
    for seed in ("autumn", "spring"):
        graded = grade(EX01, cheat, seed)
        assert graded.parts[0].earned == 4
        assert graded.hidden is not None
        assert graded.hidden < 6


def test_the_seed_of_the_command_line_wins_over_the_file_and_that_over_the_default(
    checkout: Path,
) -> None:
    assert private_seed(checkout) == DEFAULT_SEED
    (checkout / ".grading").mkdir()
    (checkout / ".grading" / "seed").write_text("autumn\n")
    assert private_seed(checkout) == "autumn"
    (checkout / ".grading" / "seed").write_text("\n")
    with pytest.raises(ValueError, match="is empty: write a seed into it"):
        private_seed(checkout)


def test_a_place_for_scores_that_is_not_there_is_told_before_anything_is_graded() -> None:
    with pytest.raises(ValueError, match="there is no folder /nowhere"):
        commands.main(["grade", "ex01", "--csv", "/nowhere/scores.csv"])


def test_ones_own_notebook_is_graded_with_hidden_cases(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(answered(EX01, *PARTS), mine(checkout))
    assert commands.main(["grade", "ex01", "--seed", "autumn"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ex01_kv_budget: 18 of 18 points"


def test_a_notebook_that_lies_anywhere_is_graded(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handed_in = save(answered(EX01, *PARTS), checkout / "mail" / "ada.ipynb")
    table = checkout / "scores.csv"
    assert commands.main(["grade", "ex01", str(handed_in), "--csv", str(table)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ex01_kv_budget: 18 of 18 points"
    (row,) = csv.DictReader(table.open(encoding="utf-8"))
    assert (row["student"], row["score"]) == (str(handed_in), "18")


def test_the_notebook_of_another_exercise_is_told_apart_from_a_wrong_answer(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = save(solution(load("ex00")), checkout / "ex00.ipynb")
    assert commands.main(["grade", "ex01", str(other)]) == 0
    assert "the notebook has no kv_bytes_per_token and no " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a letter", "it does not hold JSON, as Jupyter saves it"),
        ('{"cells": 3}', "it has no cells with sources, as Jupyter saves them"),
        ('{"cells": [{}]}', "it has no cells with sources"),
        ("[]", "it has no cells with sources"),
    ],
)
def test_a_file_that_is_no_notebook_is_told_in_our_own_words(
    checkout: Path, text: str, said: str
) -> None:
    file = checkout / "letter.ipynb"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^letter.ipynb is no notebook: {said}"):
        commands.main(["grade", "ex01", str(file)])


def test_a_folder_that_is_not_there_or_empty_is_told(checkout: Path) -> None:
    with pytest.raises(ValueError, match="there is no folder and no notebook nowhere"):
        commands.main(["grade", "ex01", "nowhere"])
    (checkout / "empty").mkdir()
    with pytest.raises(ValueError, match=r"expected as STUDENT/ex01\.ipynb"):
        commands.main(["grade", "ex01", "empty"])


def test_bad_input_is_one_line_and_status_1() -> None:
    command = [sys.executable, "-m", "minillm_serve.cli", "exercises", "check", "ex77"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("minillm-serve exercises: no exercise 'ex77': there are ex")
    assert len(done.stderr.splitlines()) == 1


def test_outside_a_checkout_the_packages_own_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_root() == ROOT
