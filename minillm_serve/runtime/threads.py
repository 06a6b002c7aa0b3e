"""One number of threads for all that computes on a CPU."""

import ctypes
import os

import numba
import torch

#: OpenMP's `omp_pause_soft`.
PAUSE = 1


def share_threads(threads: int | None = None) -> None:
    """Gives Numba as many threads as torch has, in the calling thread and all that it computes.

    Both numbers belong to the calling thread: another one starts with what the machine has. Two
    numbers that differ cost more than all computing, for OpenMP then starts its threads anew for
    every kernel.

    The two share one OpenMP, and Numba starts its own threads by setting that library's number for
    the whole process: unless it is set back, torch is left with a number that nobody chose.

    Args:
        threads: of both; by default torch's.
    """
    threads = threads or torch.get_num_threads()
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(threads, most))
    torch.set_num_threads(threads)


def release_threads() -> None:
    """Lets go of the threads that OpenMP keeps for the calling thread; its next loop gets new ones.

    For a thread that hands its computing over to another. Idle threads count: if they and the other
    one's are more than there are cores, OpenMP lets all of them sleep between two loops instead of
    waiting awake, and to be woken for each of some hundred loops takes a fifth of a step. Where
    OpenMP has no such call, nothing happens.
    """
    loaded = ctypes.CDLL(None) if os.name == "posix" else None
    pause = getattr(loaded, "omp_pause_resource_all", None)
    if pause is not None:
        pause(PAUSE)
