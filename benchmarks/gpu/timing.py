"""How long something takes on a device."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

#: Written between two measurements, so that none finds its inputs in the GPU's cache. No card has
#: a larger one (a B200 has 126 MB).
FLUSH_BYTES = 256 * 2**20
MOST_REPEATS = 50


def milliseconds(run: Callable[[], Any], device: torch.device, *, seconds: float = 0.5) -> float:
    """Median time of one call, in ms.

    On a GPU a call is recorded as a CUDA graph where that works, so that the time is that of the
    kernels and not of the Python that starts them, which an engine that replays graphs is rid of.

    Args:
        run: what to time.
        device: where it works. On a CPU, where only rehearsals run, a single call is timed.
        seconds: about how long all repetitions may take together.
    """
    if device.type == "cuda":
        return _on_gpu(run, seconds)
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def _on_gpu(run: Callable[[], Any], seconds: float) -> float:
    for _ in range(2):
        run()
    run = _recorded(run)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def once() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    first = statistics.median(once() for _ in range(3))
    repeats = max(3, min(MOST_REPEATS, int(seconds * 1e3 / (first + 0.2))))
    return statistics.median(once() for _ in range(repeats))


def _recorded(run: Callable[[], Any]) -> Callable[[], Any]:
    """A replay of `run`; `run` itself if it cannot be recorded."""
    try:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:
        torch.cuda.synchronize()
        return run
    return graph.replay
