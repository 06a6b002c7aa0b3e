"""This machine as a `Hardware`: measured, not looked up."""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections.abc import Callable

from minillm_serve.sim.shapes import Hardware
from minillm_serve.sim.units import MiB

# Far larger than any last-level cache, so that the sum below streams from memory.
_BUFFER_BYTES = 256 * MiB
# 2 * 1024**3 FLOPs: long enough to reach full speed, short enough for a notebook.
_MATMUL_SIDE = 1024


@functools.cache
def measured_cpu(repeats: int = 5) -> Hardware:
    """Measure this machine's read bandwidth and fp32 matmul rate (about half a second, once).

    The best of ``repeats`` runs is kept: other processes can only make a run slower. A CPU has no
    fp16 tensor cores, so its fp16 rate is set to the measured fp32 rate.

    Args:
        repeats: runs of each measurement, 1 or more.

    Returns:
        A `Hardware` whose ``source`` begins with ``'measured'``; cached for the process.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; measure at least once")
    import torch

    buffer = torch.ones(_BUFFER_BYTES // 4, dtype=torch.float32)
    bandwidth = _BUFFER_BYTES / _best(lambda: buffer.sum(), repeats)
    side = torch.ones(_MATMUL_SIDE, _MATMUL_SIDE, dtype=torch.float32)
    flops = 2 * _MATMUL_SIDE**3 / _best(lambda: side @ side, repeats)
    threads = torch.get_num_threads()
    return Hardware(
        name="this CPU",
        memory_bytes=_physical_memory(),
        bandwidth_bytes_s=bandwidth,
        flops_fp16_dense=flops,
        flops_fp32=flops,
        source=f"measured: fp32 sum and matmul in torch, {threads} threads",
        year=time.localtime().tm_year,
    )


def _best(work: Callable[[], object], repeats: int) -> float:
    work()  # first touch, thread pool start
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        pass
    try:
        psutil = importlib.import_module("psutil")  # comes with Jupyter, not with the engine
    except ImportError as error:
        raise RuntimeError(
            "cannot tell how much memory this machine has: run `pip install psutil`"
        ) from error
    return int(psutil.virtual_memory().total)
