"""Look at a package from a child process, so that no broken package can take the doctor with it.

An import can end a process (a wrong instruction set, a clash of two OpenMP libraries), hang, or
leave half a module behind. In a child all of these are findings like any other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Probe:
    """What a child process reported.

    Attributes:
        data: the JSON object that it printed; empty if it did not get that far.
        error: why there is no data, in one line; None when all went well.
        missing: the package whose absence ended it, where that was the reason.
    """

    data: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    missing: str | None = None


def run_probe(
    name: str,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 180.0,
) -> Probe:
    """Run one of the functions in `probes.py` in a child process.

    Args:
        name: the function's name.
        env: the child's environment; this process's own, if None.
        timeout: seconds before the child is given up and killed.

    Returns:
        What it found, or why it found nothing; this never raises for a broken package.
    """
    return run_child(["-m", "minillm_serve.doctor.probes", name], env=env, timeout=timeout)


def run_child(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 180.0,
) -> Probe:
    """Run this Python with `arguments` and read the JSON object on its last line of output."""
    # -P: a file called `random.py` in the current folder is not the engine's concern.
    command = [sys.executable, "-P", *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=_child_env(os.environ if env is None else env),
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Probe(error=f"gave no answer in {timeout:.0f} s")
    except OSError as error:
        return Probe(error=f"cannot start {sys.executable}: {error}")
    return _read(done)


def _child_env(env: Mapping[str, str]) -> dict[str, str]:
    """Let the child find this very package, after whatever the user's own PYTHONPATH names."""
    paths = [path for path in (env.get("PYTHONPATH"), _PACKAGE_PARENT) if path]
    return {**env, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}


def _read(done: subprocess.CompletedProcess[str]) -> Probe:
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        answer = None
    if isinstance(answer, dict):
        error = answer.pop("error", None)
        missing = answer.pop("missing", None)
        return Probe(data=answer, error=error, missing=missing)
    if done.returncode < 0:
        return Probe(error=f"the process was ended by {_signal_name(-done.returncode)}")
    last = done.stderr.strip().splitlines()[-1:] or ["no output"]
    return Probe(error=f"exit code {done.returncode}: {last[0]}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
