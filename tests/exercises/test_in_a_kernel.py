"""Exercises in a real kernel: beside its event loop, and run again and again."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from minillm_serve.course import notebooks
from tests.house.tree import ROOT

ANSWER = """from minillm_serve.course.exercises import check

def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype_bytes
"""
ASKED_TWICE = """import asyncio

async def ask():
    await asyncio.sleep(0)
    return check("ex01-bytes", kv_bytes_per_token)

asyncio.get_running_loop()
scores = [check("ex01-bytes", kv_bytes_per_token), await ask(), await ask()]
scores"""
GRADED = """from minillm_serve.course.exercises.grading import grade
from minillm_serve.course.exercises.registry import load

code = {"cell_type": "code", "metadata": {}, "source": "raise SystemExit"}
grade(load("ex01"), {"cells": [code]}, "autumn").problem[:25]"""


def run(folder: Path, *sources: str) -> list[Any]:
    """The outputs of these cells, one list a cell."""
    cells = [new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    done, _ = notebooks.execute(new_notebook(cells=cells), folder)
    return [cell.outputs for cell in done.cells]


def test_b155_checks_and_grades_run_beside_a_running_event_loop_again_and_again(
    tmp_path: Path,
) -> None:
    _, scores, problem = run(tmp_path, ANSWER, ASKED_TWICE, GRADED)
    assert scores[-1].data["text/plain"] == "[3.0, 3.0, 3.0]"
    assert problem[-1].data["text/plain"] == "'the code ended the whole '"


def test_b148_a_check_of_a_failing_answer_shows_no_traceback_of_the_checker(tmp_path: Path) -> None:
    broken = "from minillm_serve.course.exercises import check\ndef f(**_):\n    return 1 / 0"
    _, outputs = run(tmp_path, broken, 'check("ex01-bytes", f)')
    (shown,) = outputs
    assert (shown.output_type, shown.data["text/plain"]) == ("execute_result", "0.0")
    page = shown.data["text/html"]
    assert "it raised TypeError: f() takes 0 positional arguments" in page or "division" in page
    assert "judging.py" not in page
    assert "Traceback" not in page


def test_the_line_of_the_learners_cell_is_told_in_a_kernel_too(tmp_path: Path) -> None:
    broken = (
        "from minillm_serve.course.exercises import check\ndef f(config, **_):\n    return 1 / 0"
    )
    _, outputs = run(tmp_path, broken, 'check("ex01-bytes", f)')
    assert (
        "it raised ZeroDivisionError: division by zero (line 3 of your cell)"
        in (outputs[0].data["text/html"])
    )


def test_b143_a_cell_that_is_silent_for_long_keeps_its_output(tmp_path: Path) -> None:
    """Longer than the ten seconds at which runners used to give up; with the Makefile's options."""
    path = tmp_path / "silent.ipynb"
    quiet = new_code_cell("import time\ntime.sleep(11)\nprint('awake')", id="quiet")
    nbformat.write(new_notebook(cells=[quiet, new_code_cell("1 + 1", id="next")]), path)
    assert notebooks.main([str(path)]) == 0
    assert nbformat.read(path, as_version=4).cells[0].outputs[0].text == "awake\n"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "--nbval-cell-timeout 120" in makefile
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", "--nbval-cell-timeout", "120", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
