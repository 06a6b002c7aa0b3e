"""What a measurement was taken on: a figure without it means nothing."""

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "transformers", "numba", "numpy")


def stamp(**more: Any) -> dict[str, Any]:
    """Machine, versions, commit and date, and whatever else identifies the measurement."""
    return {
        "hardware": hardware(),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
        },
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **more,
    }


def hardware() -> str:
    """One line: the GPU, or the CPU and how many of its cores torch uses."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{_cpu()}, {torch.get_num_threads()} cores"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    root = str(Path(__file__).resolve().parents[1])
    command = ["git", "-C", root, "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
