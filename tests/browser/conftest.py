"""One JupyterLab and one browser for all browser tests of a process."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from minillm_serve.course import browser as browser_finder
from minillm_serve.course.lab_server import LabServer, start
from tests.browser.lab_page import LabPage
from tests.browser.loud import REASON
from tests.browser.loud import pytest_terminal_summary as pytest_terminal_summary  # registers it
from tests.browser.small_notebook import write_executed

REPOSITORY = Path(__file__).resolve().parents[2]


def no_browser(why: str) -> None:
    """Skip, loudly; on CI, where nobody reads what was skipped, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{REASON}: {why}")
    pytest.skip(f"{REASON}: {why}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chrome or Chromium, installed if need be."""
    try:
        # Two processes of one test run must not install at once.
        with FileLock(Path(tempfile.gettempdir()) / "minillm-serve-browser.lock"):
            path = browser_finder.install()
    except browser_finder.BrowserNotFoundError as error:
        no_browser(str(error))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=str(path), args=list(browser_finder.LAUNCH_ARGS)
        )
        yield started
        started.close()


@pytest.fixture(scope="session")
def lab_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Lab shows: copies of the chapters, beside what they read, and the small notebook.

    Copies, since Lab saves what it runs, and the committed notebooks are not to change.
    """
    root = tmp_path_factory.mktemp("course")
    (root / "notebooks").mkdir()
    for chapter in sorted((REPOSITORY / "notebooks").glob("*.ipynb")):
        shutil.copy(chapter, root / "notebooks")
    results = REPOSITORY / "benchmarks" / "results"
    if results.is_dir():
        shutil.copytree(results, root / "benchmarks" / "results")
    write_executed(root / "notebooks" / "small.ipynb")
    return root


@pytest.fixture(scope="session")
def lab_server(
    chromium: Browser, lab_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LabServer]:
    """JupyterLab as `minillm-serve lab` starts it, with folders of its own and on any free port."""
    server = start(
        lab_root,
        tmp_path_factory.mktemp("config"),
        tmp_path_factory.mktemp("runtime"),
        port=0,
        extra=["--LabApp.expose_app_in_browser=True"],
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A fresh profile, with a window as high as a reader who scrolls."""
    fresh = chromium.new_context(viewport={"width": 1400, "height": 1000})
    yield fresh
    fresh.close()


@pytest.fixture(scope="module")
def small(context: BrowserContext, lab_server: LabServer) -> Iterator[LabPage]:
    """The small notebook, opened and run."""
    page = LabPage(context, lab_server)
    page.open("notebooks/small.ipynb")
    page.run_all()
    assert page.cell_errors() == []
    yield page
    page.close()


@pytest.fixture
def live(small: LabPage) -> Iterator[LabPage]:
    """The running small notebook; the test fails if it left a fault behind."""
    small.page.mouse.move(2, 2)  # off whatever the last test pointed at
    yield small
    small.assert_clean()
