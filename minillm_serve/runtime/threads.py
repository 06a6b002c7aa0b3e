"""One number of threads for all that computes on a CPU."""

import numba
import torch


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
