"""Say loudly, at the end of a run, that the browser tests were skipped.

The hook is to be a global one: with pytest-xdist the process that writes the summary collects
nothing, and so never loads the `conftest.py` of this folder.
"""

from typing import Any

import pytest

REASON = "NO BROWSER"
_SAID = pytest.StashKey[bool]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write a red line if any test was skipped for want of a browser; once, whoever calls."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if REASON in str(report.longrepr)
    ]
    if not skipped or config.stash.get(_SAID, False):
        return
    config.stash[_SAID] = True
    terminalreporter.write_sep("!", f"{len(skipped)} BROWSER TESTS WERE SKIPPED", red=True)
    terminalreporter.write_line(str(skipped[0].longrepr[-1]), red=True)
    terminalreporter.write_line(
        "Get a browser with: python -m minillm_serve.course.browser --install", red=True
    )
