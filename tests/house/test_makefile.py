"""The Makefile: what it lists, and when it makes the environment anew.

Making a real environment takes minutes, so a stand-in for Python is used where only the order of
the steps is asked about: it notes how it is called, and "makes" an environment that holds itself.
"""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.house.tree import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

TARGETS = ["help", "lab", "serve", "test", "test-full", "check", "notebooks", "clean"]

FAKE_PYTHON = """#!/bin/bash
case "$*" in
  *"import ensurepip"*) [ -z "$NO_VENV" ] || exit 1 ;;
  "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo "venv" >> calls ;;
  "-m pip install "*)
    echo "install $(grep ^torch== .venv/constraints.txt)" >> calls
    [ -z "$FAIL_INSTALL" ] || exit 1 ;;
  "-m pip uninstall "*) echo "uninstall ${*: -1}" >> calls ;;
esac
exit 0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout at a path with a space, with the stand-in beside it."""
    folder = tmp_path / "a check out"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    python = tmp_path / "python3"
    python.write_text(FAKE_PYTHON)
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return folder


def make(
    folder: Path, *arguments: str, python: str = "../python3", **env: str
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={python}", *arguments],
        cwd=folder,
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def calls(folder: Path) -> list[str]:
    """What the stand-in was asked since the last look."""
    log = folder / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


PIN = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text("utf-8"), re.M).group()
WHOLE = ["venv", f"install {PIN}", "uninstall rfc3987-syntax"]


def test_help_is_the_default_and_lists_every_command_with_what_it_does() -> None:
    bare, asked = make(ROOT), make(ROOT, "help")
    assert bare.stdout == asked.stdout
    listed = re.findall(r"^  ([a-z-]+) +(\S.+)$", bare.stdout, re.M)
    assert [name for name, _ in listed] == TARGETS


def test_the_first_set_up_makes_everything_and_the_second_nothing(checkout: Path) -> None:
    assert make(checkout, "setup").returncode == 0
    assert calls(checkout) == WHOLE
    again = make(checkout, "setup")
    assert (again.returncode, again.stdout, calls(checkout)) == (0, "", [])


def test_a_set_up_that_was_broken_off_is_made_anew(checkout: Path) -> None:
    assert make(checkout, "setup", FAIL_INSTALL="1").returncode != 0
    (checkout / ".venv" / "half-installed").write_text("")
    calls(checkout)
    assert make(checkout, "setup").returncode == 0
    assert calls(checkout) == WHOLE
    assert not (checkout / ".venv" / "half-installed").exists()


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Path) -> None:
    make(checkout, "setup")
    calls(checkout)
    (checkout / ".venv" / "bin" / "python").unlink()
    assert make(checkout, "setup").returncode == 0
    assert calls(checkout) == WHOLE


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_requirement_installs_into_the_same_environment(
    checkout: Path, name: str
) -> None:
    make(checkout, "setup")
    calls(checkout)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert make(checkout, "setup").returncode == 0
    assert calls(checkout) == WHOLE[1:]


def test_a_moved_checkout_is_installed_again(checkout: Path) -> None:
    make(checkout, "setup")
    calls(checkout)
    moved = checkout.rename(checkout.with_name("else where"))
    assert make(moved, "setup").returncode == 0
    assert calls(moved) == WHOLE[1:]


def test_another_torch_is_taken_remembered_and_given_back(checkout: Path) -> None:
    make(checkout, "setup", "TORCH=2.11.0")
    assert "install torch==2.11.0" in calls(checkout)
    constraints = (checkout / ".venv" / "constraints.txt").read_text()
    assert "triton==" not in constraints
    make(checkout, "setup")
    assert calls(checkout) == []
    make(checkout, "setup", "TORCH=")
    assert calls(checkout) == WHOLE[1:]


def test_a_python_that_is_too_old_is_said_to_be(checkout: Path) -> None:
    done = make(checkout, "setup", python="")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_without_venv_names_debians_package(checkout: Path) -> None:
    done = make(checkout, "setup", NO_VENV="1")
    assert done.returncode != 0
    assert "sudo apt-get install python3-venv" in done.stderr


def test_clean_keeps_the_environment(checkout: Path) -> None:
    make(checkout, "setup")
    (checkout / "kernels" / "__pycache__").mkdir(parents=True)
    (checkout / ".venv" / "__pycache__").mkdir()
    (checkout / "dist").mkdir()
    assert make(checkout, "clean").returncode == 0
    assert not (checkout / "kernels" / "__pycache__").exists()
    assert not (checkout / "dist").exists()
    assert (checkout / ".venv" / "__pycache__").exists()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    last = script.read_text("utf-8").strip().splitlines()[-1]
    assert last == "exec make test"
    assert "\nmake test " in (ROOT / "README.md").read_text("utf-8")
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
