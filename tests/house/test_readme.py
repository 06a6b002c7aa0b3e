"""What the documents at the root promise exists: files, commands, options, variables, Python."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minillm_serve.cli import COMMANDS
from tests.house.tree import ROOT, project_files, read_text

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "kernels/README.md"]


def text_of(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_to_a_file_leads_to_one(document: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", text_of(document))
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    missing = [link for link in local if not (ROOT / document).parent.joinpath(link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_that_is_named_exists(document: str) -> None:
    text = text_of(document)
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    assert set(re.findall(r"(?:`|^|\d )make ([a-z-]+)", text, re.M)) - targets == set()
    assert set(re.findall(r"minillm-serve ([a-z][a-z-]*)", text)) - set(COMMANDS) == set()
    modules = set(re.findall(r"python -m (minillm_serve[\w.]+)", text))
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_variable_that_is_named_is_read_somewhere(document: str) -> None:
    named = set(re.findall(r"\bMINILLM_SERVE_[A-Z_]+", text_of(document)))
    package = [path for path in project_files() if ROOT / "minillm_serve" in path.parents]
    code = "\n".join(read_text(path) or "" for path in package if path.suffix == ".py")
    assert {name for name in named if f'"{name}"' not in code} == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_code_marks_exists(document: str) -> None:
    paths = re.findall(r"`((?:minillm_serve|kernels|notebooks|\.ci)/[\w./-]*)`", text_of(document))
    wanted = [path for path in paths if "NN_" not in path]
    assert [path for path in wanted if not (ROOT / path).exists()] == []


def test_the_chapters_that_are_marked_as_here_are_the_ones_that_are() -> None:
    rows = re.findall(r"^\| (\d\d) \| .* \| ([^|]+) \|$", text_of("README.md"), re.M)
    assert [number for number, _ in rows] == [f"{n:02}" for n in range(13)]
    here = {number for number, state in rows if "here" in state}
    assert here == {path.name[:2] for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}


@pytest.mark.model
def test_the_readmes_python_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.S)
    (code,) = [block for block in blocks if "import LLM" in block]
    script = tmp_path / "quick_start.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 50


def test_every_kernel_file_is_listed_beside_the_kernels() -> None:
    listed = set(re.findall(r"^\| `(\w+\.py)` \|", text_of("kernels/README.md"), re.M))
    assert listed == {path.name for path in (ROOT / "kernels").glob("*.py")}


def test_the_changelog_has_an_entry_for_what_is_unreleased() -> None:
    assert re.search(r"^## \[Unreleased\]\n\n### \w+\n\n- ", text_of("CHANGELOG.md"), re.M)


def test_hooks_before_a_commit_download_nothing() -> None:
    hooks = text_of(".pre-commit-config.yaml")
    assert re.findall(r"- repo: (\S+)", hooks) == ["local"]
    assert {"ruff", "ruff-format", "mypy"} == set(re.findall(r"- id: (\S+)", hooks))
