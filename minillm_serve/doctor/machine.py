"""Checks of the machine: GPU, memory, disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .probe import Probe
from .report import Check, Status

GROUP = "Machine"
GIB = 1024**3


def check_gpu(torch_probe: Probe, driver: str | None) -> Check:
    """Check that the GPUs that the driver shows are usable from torch.

    Args:
        torch_probe: what the `torch` probe reported.
        driver: the NVIDIA driver's version as `nvidia_driver` found it; None without one.
    """
    gpus: list[dict[str, Any]] = torch_probe.data.get("gpus", [])
    if not gpus:
        return _no_gpu(torch_probe, driver)
    first = gpus[0]
    found = f"{first['name']}, {first['memory'] / GIB:.0f} GiB, capability {first['capability']}"
    found += f", driver {driver}" if driver else ""
    found += f" (and {len(gpus) - 1} more)" if len(gpus) > 1 else ""
    broken = next((gpu["error"] for gpu in gpus if gpu["error"]), None)
    if broken:
        remedy = "install a torch build for this GPU and driver, or run with CUDA_VISIBLE_DEVICES="
        return Check(GROUP, "gpu", Status.FAIL, f"{found}: {broken}", remedy)
    is_nvidia = torch_probe.data.get("hip") is None
    if is_nvidia and int(first["capability"].split(".")[0]) < 8:
        remedy = 'no bfloat16 in hardware before capability 8.0: pass dtype="float16" or "float32"'
        return Check(GROUP, "gpu", Status.WARN, found, remedy)
    return Check(GROUP, "gpu", Status.OK, found)


def _no_gpu(torch_probe: Probe, driver: str | None) -> Check:
    if driver is None or torch_probe.error:
        found = f"not visible to torch (driver {driver})" if driver else "none: the CPU does it all"
        return Check(GROUP, "gpu", Status.OK, found)
    if torch_probe.data.get("cuda") is None:
        why = "torch is a CPU build"
        remedy = "install a CUDA build of torch: README, Troubleshooting"
    else:
        why = f"torch's CUDA {torch_probe.data['cuda']} cannot use it"
        remedy = (
            "a newer driver or an older torch (make lab TORCH=...); is CUDA_VISIBLE_DEVICES set?"
        )
    return Check(GROUP, "gpu", Status.WARN, f"driver {driver} is there, but {why}", remedy)


def nvidia_driver() -> str | None:
    """Return the NVIDIA driver's version, or None where `nvidia-smi` shows no GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def check_memory(total: int | None, needed: int = 4 * GIB) -> Check:
    """Check the machine's memory [bytes] against what the default model and a notebook take."""
    if total is None:
        return Check(GROUP, "memory", Status.OK, "size unknown on this system")
    found = f"{total / GIB:.1f} GiB"
    if total < needed:
        remedy = f"below {needed / GIB:.0f} GiB, keep one notebook open at a time"
        return Check(GROUP, "memory", Status.WARN, found, remedy)
    return Check(GROUP, "memory", Status.OK, found)


def memory_bytes() -> int | None:
    """Return the memory this process may use [bytes]: the machine's, or its container's if less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None  # Windows has no sysconf
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def check_disk(folder: Path, *, needed: int = 2 * GIB, have_model: bool = False) -> Check:
    """Check that models can be stored in a folder.

    Args:
        folder: where models are cached; it need not exist yet.
        needed: free space [bytes] below which this warns.
        have_model: whether the default model is there already; then a folder that cannot be
            written to is no more than a warning.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    status = Status.WARN if have_model else Status.FAIL
    elsewhere = "set MINILLM_SERVE_CACHE to a folder with room that you may write to"
    if not existing.is_dir():
        found = f"{existing} is a file where a folder is needed"
        return Check(GROUP, "disk", status, found, f"move it away, or {elsewhere}")
    try:
        # Permissions do not tell of a read-only mount or of a quota: write for real.
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        found = f"{existing} cannot be written to ({error.strerror})"
        return Check(GROUP, "disk", status, found, elsewhere)
    free = shutil.disk_usage(existing).free
    found = f"{free / GIB:.1f} GiB free at {folder}"
    if free < needed:
        remedy = f"free some space ({needed / GIB:.0f} GiB are wanted), or {elsewhere}"
        return Check(GROUP, "disk", Status.WARN, found, remedy)
    return Check(GROUP, "disk", Status.OK, found)
