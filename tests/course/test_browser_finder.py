"""Finding a browser: by name, by place, by choice; and the reasons when there is none."""

import os
import stat
from pathlib import Path

import pytest

from minillm_serve.course import browser


def make_browser(path: Path, *, works: bool = True) -> Path:
    """A program that answers `--version`, or one that fails as a stub does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if works else 1}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


pytestmark = pytest.mark.skipif(os.name != "posix", reason="makes shell scripts")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment of a Linux machine with no browser at all."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_nothing_is_found_where_there_is_nothing(empty: dict[str, str]) -> None:
    assert browser.find(empty) is None


@pytest.mark.parametrize("name", ["google-chrome", "chromium", "chromium-browser", "msedge"])
def test_browsers_on_the_path_are_found(empty: dict[str, str], tmp_path: Path, name: str) -> None:
    assert browser.find(empty) is None
    made = make_browser(tmp_path / "bin" / name)
    assert browser.find(empty) == made


def test_a_stub_that_does_not_start_is_passed_over(empty: dict[str, str], tmp_path: Path) -> None:
    make_browser(tmp_path / "bin" / "google-chrome", works=False)
    real = make_browser(tmp_path / "bin" / "chromium")
    assert browser.find(empty) == real


@pytest.mark.parametrize(
    "place", ["chromium-1200/chrome-linux64/chrome", "chromium-1100/chrome-linux/chrome"]
)
def test_playwrights_own_download_is_found(
    empty: dict[str, str], tmp_path: Path, place: str
) -> None:
    made = make_browser(tmp_path / "cache" / "ms-playwright" / place)
    assert browser.find(empty) == made
    elsewhere = {**empty, "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "none")}
    assert browser.find(elsewhere) is None


def test_applications_of_macos_and_windows_are_looked_for(
    empty: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = make_browser(tmp_path / "home" / "Applications" / browser.MAC_APPS[1])
    assert browser.find(empty) == made


def test_the_chosen_one_comes_first_and_must_exist(empty: dict[str, str], tmp_path: Path) -> None:
    make_browser(tmp_path / "bin" / "chromium")
    mine = make_browser(tmp_path / "mine")
    assert browser.find({**empty, browser.ENV_VAR: str(mine)}) == mine
    with pytest.raises(browser.BrowserNotFoundError, match="is not a file: point it at"):
        browser.find({**empty, browser.ENV_VAR: str(tmp_path / "gone")})


def test_each_way_that_failed_is_named_with_its_reason(
    empty: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "find", lambda: None)
    failing = [["sh", "-c", "echo no such package >&2; exit 7"]]
    ways = [("the package", failing), ("the download", [["true"]])]
    monkeypatch.setattr(browser, "_attempts", lambda: ways)
    with pytest.raises(browser.BrowserNotFoundError) as caught:
        browser.install()
    said = str(caught.value)
    assert "the package: sh ended with 7: no such package" in said
    assert "the download: it installed, but no browser that starts is found" in said
    assert browser.ENV_VAR in said


def test_the_command_line_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "find", lambda: None)
    assert browser.main([]) == 1
    assert "python -m minillm_serve.course.browser --install" in capsys.readouterr().err
    monkeypatch.setattr(browser, "find", lambda: Path("/somewhere/chrome"))
    assert browser.main(["--install"]) == 0
    assert "chrome" in capsys.readouterr().out
