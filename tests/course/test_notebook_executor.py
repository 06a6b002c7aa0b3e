"""The notebook executor and checker, on small notebooks in real kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minillm_serve.course import notebooks
from minillm_serve.course.notebook_checks import check
from tests.browser.small_notebook import build

SANITIZE = Path(__file__).parents[1] / "sanitize.cfg"


def save(path: Path, *sources: str) -> Path:
    """Write a notebook of these code cells, not executed."""
    cells = [new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each widget, executed once."""
    path = tmp_path_factory.mktemp("executed") / "small.ipynb"
    nbformat.write(build(), path)
    assert notebooks.main([str(path)]) == 0
    return path


@pytest.mark.parametrize("last", ["1", "1 / 0"])
def test_no_kernel_is_left_behind(tmp_path: Path, last: str) -> None:
    """A chapter's kernel holds a model: a dozen of them would be more than a laptop has."""
    note = tmp_path / "pid"
    source = f"import os, pathlib\npathlib.Path({str(note)!r}).write_text(str(os.getpid()))"
    notebooks.main([str(save(tmp_path / "one.ipynb", source, last))])
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def data_of(path: Path) -> list[dict[str, Any]]:
    """The data of every output in order."""
    notebook = nbformat.read(path, as_version=4)
    return [
        dict(output["data"])
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]


def test_b154_every_widget_is_stored_as_what_any_reader_can_show(executed: Path) -> None:
    outputs = data_of(executed)
    assert len(outputs) == 6
    assert sum("image/png" in data for data in outputs) == 4
    assert not any("widget" in mime for data in outputs for mime in data)
    assert "widgets" not in nbformat.read(executed, as_version=4).metadata


def test_b154_its_html_export_reads_well_without_a_kernel(executed: Path) -> None:
    page, _ = HTMLExporter().from_filename(str(executed))
    assert page.count('src="data:image/png') == 4
    assert "<details><summary>Answer</summary>" in page
    assert "widget-view" not in page


def test_b142_b145_executing_again_changes_no_byte(executed: Path) -> None:
    before = executed.read_bytes()
    assert notebooks.main([str(executed)]) == 0
    assert executed.read_bytes() == before


def test_b142_nbval_is_content_with_it_twice(executed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}", str(executed)]
    for _ in range(2):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=executed.parent
        )
        assert done.returncode == 0, done.stdout


def test_a_checked_notebook_passes_and_is_not_written(executed: Path) -> None:
    before = executed.stat().st_mtime_ns
    assert notebooks.main(["--check", "--no-run", str(executed.parent)]) == 0
    assert executed.stat().st_mtime_ns == before


def test_the_kernel_is_this_interpreter_in_the_notebooks_folder(tmp_path: Path) -> None:
    save(tmp_path / "a.ipynb", "import os, sys\nprint(os.getcwd())\nprint(sys.executable)")
    notebook = nbformat.read(tmp_path / "a.ipynb", as_version=4)
    done, _ = notebooks.execute(notebook, tmp_path)
    assert done.cells[0].outputs[0].text.splitlines() == [str(tmp_path), sys.executable]


def test_the_users_jupyter_folders_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "mine"))
    before = dict(os.environ)
    notebook = nbformat.read(save(tmp_path / "a.ipynb", "1"), as_version=4)
    notebooks.execute(notebook, tmp_path)
    assert not (tmp_path / "mine").exists()
    assert dict(os.environ) == before


def test_a_failing_cell_stops_it_and_leaves_the_file_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "a.ipynb", "1 + 1", "raise ValueError('in vain')")
    before = path.read_bytes()
    assert notebooks.main([str(path)]) == 1
    assert "ValueError: in vain" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_notebook_that_takes_too_long_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "a.ipynb", "import time\nwhile True: time.sleep(0.1)")
    assert notebooks.main(["--limit", "3", str(path)]) == 1
    assert "timed out" in capsys.readouterr().err.lower()


def test_an_experiment_that_failed_is_not_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (
        "from minillm_serve.course import Experiment, controls\n"
        "Experiment(lambda b: 1 / 0, {'b': controls.integer('b', 1, 2, 1)})"
    )
    path = save(tmp_path / "a.ipynb", source)
    assert notebooks.main([str(path)]) == 1
    assert "EXPERIMENT FAILED: ZeroDivisionError" in capsys.readouterr().err
    assert nbformat.read(path, as_version=4).cells[0].outputs == []


def test_tags_and_good_ids_stay_and_the_rest_is_made_the_same_each_time(tmp_path: Path) -> None:
    cells = [new_code_cell("1", id="good"), new_code_cell("1", id="other"), new_markdown_cell("x")]
    cells[0].metadata = {"tags": ["nbval-ignore-output"], "ExecuteTime": {"start": 1}}
    raw = json.loads(json.dumps(new_notebook(cells=cells, metadata={"widgets": {"state": {}}})))
    raw["cells"][1]["id"], raw["cells"][2]["id"] = "good", "not an id"
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(raw))
    one, other = notebooks.read(path), notebooks.read(path)
    notebooks.tidy(one)
    notebooks.tidy(other)
    assert one == other
    ids = [cell.id for cell in one.cells]
    assert ids[0] == "good"
    assert len(set(ids)) == 3
    assert one.cells[0].metadata == {"tags": ["nbval-ignore-output"]}
    assert set(one.metadata) == {"kernelspec", "language_info"}


def test_a_missing_path_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        notebooks.main(["nowhere.ipynb"])
    assert "nowhere.ipynb does not exist" in capsys.readouterr().err


def test_checkpoints_are_not_notebooks(tmp_path: Path) -> None:
    (tmp_path / ".ipynb_checkpoints").mkdir()
    save(tmp_path / ".ipynb_checkpoints" / "a-checkpoint.ipynb", "1")
    kept = save(tmp_path / "a.ipynb", "1")
    assert notebooks.find_notebooks([tmp_path]) == [kept]


def clean_notebook() -> Any:
    """Two executed cells with nothing wrong."""
    cells = [
        new_code_cell("1", id="a", execution_count=1),
        new_markdown_cell("text", id="b"),
        new_code_cell("2", id="c", execution_count=2),
    ]
    return new_notebook(cells=cells)


def output(text: str, kind: str = "stream") -> Any:
    """An output with this text."""
    if kind == "stream":
        return nbformat.v4.new_output("stream", name="stdout", text=text)
    return nbformat.v4.new_output("execute_result", data={kind: text}, execution_count=1)


def test_a_clean_notebook_has_no_problems() -> None:
    assert check(clean_notebook()) == []


def _set_count(notebook: Any, count: int | None) -> None:
    notebook.cells[2].execution_count = count


def _add(notebook: Any, out: Any) -> None:
    notebook.cells[0].outputs.append(out)


PROBLEMS = {
    "cell 2 was never executed": lambda n: _set_count(n, None),
    "cell 2 was executed as number 7, not 2": lambda n: _set_count(n, 7),
    "metadata.widgets is stored": lambda n: n.metadata.update(widgets={}),
    "cell 0 has 26 lines": lambda n: n.cells[0].update(source="x = 1\n" * 26),
    "cells 0 and 2 have the same id 'a'": lambda n: n.cells[2].update(id="a"),
    "cell 1 has no id": lambda n: n.cells[1].pop("id"),
    "cell 0 ended in ValueError: no": lambda n: _add(
        n, nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
    ),
    "cell 0 shows a path of one machine: '/home/ada'": lambda n: _add(
        n, output("File /home/ada/x.py")
    ),
    "cell 0 shows a path of one machine: '/tmp/ipykernel_12'": lambda n: _add(
        n, output("<p>/tmp/ipykernel_12/3.py</p>", "text/html")
    ),
    r"cell 0 shows a path of one machine: 'C:\\Users\\ada'": lambda n: _add(
        n, output(r"C:\Users\ada\x.py", "text/plain")
    ),
    "cell 0: EXPERIMENT FAILED: KeyError": lambda n: _add(
        n, output("EXPERIMENT FAILED: KeyError", "text/plain")
    ),
    "cell 0 stores a live widget": lambda n: _add(
        n, output("{}", "application/vnd.jupyter.widget-view+json")
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_of_a_committed_notebook_is_named(problem: str) -> None:
    notebook = clean_notebook()
    PROBLEMS[problem](notebook)
    assert [found for found in check(notebook) if found.startswith(problem)], check(notebook)


def test_a_file_that_is_no_notebook_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.ipynb").write_text("{")
    assert notebooks.main(["--check", "--no-run", str(tmp_path)]) == 1
    assert "cannot be read as a notebook" in capsys.readouterr().err
