"""The kernels' own tests, compiled: they go through far more shapes than the check does."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: None of the project's settings, which name plugins that need not be there.
PYTEST = (sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={ROOT}", "-q")
OPTIONS = ("--import-mode=importlib", "-p", "no:cacheprovider")
#: What compiles for other cards, and what runs on CPUs, says nothing of this one.
TESTS = (str(ROOT / "tests" / "kernels"), "-k", "not compiled and not cpu", "-m", "not slow")


def run_suite(
    seconds: float, command: Sequence[str] = (*PYTEST, *OPTIONS, *TESTS), needs: str = "pytest"
) -> dict[str, Any]:
    """Runs the tests.

    Raises:
        ArithmeticError: some fail, or none could be run.
    """
    if find_spec(needs) is None:
        return {"status": "skipped", "why": f"{needs} is not installed"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return {"status": "skipped", "why": f"not done after {seconds:.0f} s"}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        told = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-3:]
        raise ArithmeticError("; ".join(told[:8]))
    return {"remarks": lines[-1:]}
