"""Where no browser can be had, the browser tests are skipped loudly; on CI they fail."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def run_without_browser(**more: str) -> subprocess.CompletedProcess[str]:
    """Run one browser test with a browser that does not exist."""
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"MINILLM_SERVE_BROWSER": "/no/such/browser", **more}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "reset"]
    return subprocess.run(
        [*command, "tests/browser/test_widgets_in_lab.py"],
        env=env,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_they_are_skipped_with_a_loud_line_and_the_remedy() -> None:
    done = run_without_browser()
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("1 BROWSER TESTS WERE SKIPPED") == 1
    assert "python -m minillm_serve.course.browser --install" in done.stdout
    assert "/no/such/browser" in done.stdout


def test_on_ci_they_fail() -> None:
    done = run_without_browser(CI="true")
    assert done.returncode == 1
    assert "NO BROWSER: MINILLM_SERVE_BROWSER='/no/such/browser' is not a file" in done.stdout
