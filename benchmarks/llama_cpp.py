"""llama.cpp as a system under measurement, where its Python bindings are installed."""

import argparse
import time
from itertools import islice
from pathlib import Path

from benchmarks.systems import System
from benchmarks.workloads import Job

#: Tokens of a prompt and its answer that there is room for.
CONTEXT = 2048


def add_llama_cpp(made: argparse.ArgumentParser) -> None:
    """A GGUF file that llama.cpp is to be measured on as well."""
    made.add_argument(
        "--llama-cpp",
        type=Path,
        metavar="FILE.gguf",
        help="also llama.cpp on this file (needs the package llama-cpp-python)",
    )


def llama_cpp(gguf: Path, threads: int) -> System:
    """llama.cpp, one request at a time, greedy, as many tokens as are asked for.

    Args:
        gguf: the model.
        threads: that it computes with; as many as the others have.

    Raises:
        SystemExit: the file or the package is not there; says what to do.
    """
    if not gguf.is_file():
        raise SystemExit(f"error: --llama-cpp {gguf}: there is no such file")
    try:
        from llama_cpp import Llama
    except ModuleNotFoundError:
        raise SystemExit(
            "error: --llama-cpp needs llama.cpp's bindings, which are compiled where they are "
            "installed: pip install llama-cpp-python"
        ) from None
    model = Llama(
        model_path=str(gguf),
        n_ctx=CONTEXT,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )

    def run(jobs: list[Job]) -> float:
        began = time.perf_counter()
        for job in jobs:
            model.reset()  # it would not read a prompt again that it remembers
            tokens = list(islice(model.generate(job.prompt, temp=0.0), job.output_len))
            if len(tokens) != job.output_len:
                raise RuntimeError(f"llama.cpp generated {len(tokens)} of {job.output_len} tokens")
        return time.perf_counter() - began

    return run
