"""`minillm-serve lab`: what it starts, where, and what it leaves alone."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from minillm_serve.course import lab, lab_server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with two chapters and something else."""
    folder = tmp_path / "checkout"
    (folder / "notebooks").mkdir(parents=True)
    for name in ("10_later.ipynb", "02_first.ipynb", "scratch.ipynb"):
        (folder / "notebooks" / name).write_text(
            '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
        )
    return folder


def test_the_first_chapter_is_the_first_by_number(root: Path) -> None:
    assert lab.first_chapter(root) == Path("notebooks/02_first.ipynb")


def test_the_checkout_is_found_from_a_folder_below_it(root: Path) -> None:
    assert lab.find_root(root / "notebooks") == root


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((lab_server.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert lab_server.free_port(port) != port


def test_a_free_port_is_kept_and_zero_means_any() -> None:
    port = lab_server.free_port(0)
    assert port > 0
    assert lab_server.free_port(port) == port


def test_a_port_out_of_range_is_named() -> None:
    with pytest.raises(lab_server.LabError, match="port 70000 is not between"):
        lab_server.free_port(70000)


def test_missing_packages_are_named_with_the_command_that_brings_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.missing_packages(["json", "no_such_package"]) == ["no_such_package"]
    monkeypatch.setattr(lab, "missing_packages", lambda: ["jupyterlab"])
    assert lab.main(["--smoke"]) == 1
    said = capsys.readouterr().err
    assert 'jupyterlab is not installed: pip install "minillm-serve[course]"' in said


def test_no_browser_is_opened_without_a_display_or_when_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000, raising=False)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not lab.wants_browser(no_browser=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert lab.wants_browser(no_browser=False)
    assert not lab.wants_browser(no_browser=True)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert not lab.wants_browser(no_browser=False)


def test_the_token_is_not_on_the_command_line_and_the_server_stays_on_this_machine(
    tmp_path: Path,
) -> None:
    env = lab_server.environment(tmp_path / "config", tmp_path, "secret")
    assert env["JUPYTER_TOKEN"] == "secret"
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    command = lab_server.command(tmp_path, 8888)
    assert "--ServerApp.ip=127.0.0.1" in command
    assert not any("secret" in word for word in command)


def test_the_settings_that_learners_made_are_kept(tmp_path: Path) -> None:
    mine = tmp_path / "lab" / "user-settings" / "theme.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("dark")
    lab_server.write_config(tmp_path)
    lab_server.write_config(tmp_path)
    assert mine.read_text() == "dark"
    page = json.loads((tmp_path / "labconfig" / "page_config.json").read_text())
    assert page["disabledExtensions"]["@jupyterlab/apputils-extension:announcements"] is True


def test_smoke_starts_it_prints_the_url_last_and_stops_it(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
    env.pop("XDG_CONFIG_HOME", None)
    command = [sys.executable, "-m", "minillm_serve.course.lab", "--smoke", "--port", "0"]
    done = subprocess.run(
        [*command, "--root", str(root)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1].strip()
    assert last.startswith("http://127.0.0.1:")
    assert "/lab/tree/notebooks/02_first.ipynb?token=" in last
    port = int(last.split(":")[2].split("/")[0])
    with socket.socket() as probe:
        assert probe.connect_ex((lab_server.HOST, port)) != 0, "the server still runs"
    assert {path.name for path in home.iterdir()} <= {".config", ".cache"}
    assert not (home / ".jupyter").exists()


def test_a_server_that_ends_at_once_is_reported_with_its_own_words(
    root: Path, tmp_path: Path
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    with pytest.raises(lab_server.LabError, match=r"ended at once:\n(.|\n)*no-such-folder"):
        lab_server.start(root / "no-such-folder", tmp_path / "config", runtime, port=0)


def test_a_folder_without_chapters_says_where_they_come_from(tmp_path: Path) -> None:
    module = Path(lab.__file__).resolve().parents[2]
    if lab.first_chapter(module) is not None:
        assert lab.find_root(tmp_path) == module
    else:
        with pytest.raises(lab_server.LabError, match="clone it and start there"):
            lab.find_root(tmp_path)
