"""``minillm-serve doctor``: what works on this machine, what does not, and what to do about it.

Starting it takes the standard library and nothing else. Every package is looked at from a child
process (see `probe.py`), so the doctor gives its report where the patient cannot even be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .engine import (
    check_gguf,
    check_numba,
    check_package,
    check_python,
    check_torch,
    check_triton,
)
from .extras import check_browser, check_course, check_model
from .machine import check_disk, check_gpu, check_memory, memory_bytes, nvidia_driver
from .probe import Probe, run_probe
from .report import Check, Status, render, summary, to_json

__all__ = ["Check", "Status", "examine", "main", "render", "summary", "to_json"]

_INDEPENDENT = ("numpy", "transformers", "numba", "gguf", "model", "course", "browser")


def examine(env: Mapping[str, str] | None = None) -> list[Check]:
    """Run every check.

    Args:
        env: the environment in which packages are looked at; this process's own, if None.

    Returns:
        The findings, in the order in which they are best read.
    """
    env = dict(os.environ if env is None else env)
    with ThreadPoolExecutor(max_workers=3) as pool:
        running = {name: pool.submit(run_probe, name, env=env) for name in _INDEPENDENT}
        torch = run_probe("torch", env=env)
        has_gpu = bool(torch.data.get("gpus"))
        canary = run_probe("canary", env=_canary_env(env, has_gpu))
        probes = {name: future.result() for name, future in running.items()}
    model = probes["model"]
    return [
        check_python(),
        check_package("numpy", probes["numpy"]),
        check_torch(torch),
        check_package("transformers", probes["transformers"]),
        check_triton(canary, has_gpu=has_gpu),
        check_numba(probes["numba"]),
        check_gguf(probes["gguf"]),
        check_gpu(torch, nvidia_driver()),
        check_memory(memory_bytes()),
        check_disk(_cache_root(model), have_model=bool(model.data.get("present"))),
        check_model(model),
        check_course(probes["course"]),
        check_browser(probes["browser"]),
    ]


def _canary_env(env: dict[str, str], has_gpu: bool) -> dict[str, str]:
    """Without a GPU a Triton kernel runs in the interpreter, which is asked for at start."""
    return env if has_gpu else {**env, "TRITON_INTERPRET": "1"}


def _cache_root(model: Probe) -> Path:
    return Path(model.data.get("root") or Path.home() / ".cache" / "minillm_serve")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report.

    Returns:
        1 if something that the engine needs is broken, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="minillm-serve doctor",
        description="Check what works on this machine, and say what to do about the rest.",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    args = parser.parse_args(argv)
    checks = examine()
    if args.json:
        print(json.dumps(to_json(checks), indent=2))
    else:
        print(_for_terminal(checks))
    return int(any(check.status is Status.FAIL for check in checks))


def _for_terminal(checks: list[Check]) -> str:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    try:
        "✓✗→".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return render(checks, colour=colour, unicode=False).encode("ascii", "replace").decode()
    return render(checks, colour=colour)
