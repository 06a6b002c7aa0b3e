"""`minillm-serve bench`: hands over to `benchmarks/`, which comes with the repository."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

SUBJECTS = {
    "throughput": "many requests at once, beside transformers",
    "serve": "a server under load over HTTP, beside the engine without one",
    "latency": "one user alone, beside transformers",
    "linear": "a matrix product by every way of reading few bytes",
    "kernels": "decode attention, each backend on one pool",
    "indirection": "attention over blocks of 1 to 256, beside contiguous memory",
    "profile": "where the time of a step goes",
    "scheduler": "what a step costs the scheduler, however many wait",
    "prefix": "what a prefix cache costs where it finds nothing",
    "speculation": "drafts of every kind beside none, alone and in batches",
    "record": "what a schedule record takes of a step",
    "calibration": "does the simulator foretell real steps?",
    "scoreboard": "the course's trace, a row for each technique",
    "gpu_check": "on a GPU: every kernel and the engine, beside their peers",
}


def main(argv: Sequence[str]) -> int:
    """Runs one benchmark.

    Raises:
        ValueError: this is an installation without the repository.
    """
    if not argv or argv[0] in ("-h", "--help") or argv[0] not in SUBJECTS:
        print("usage: minillm-serve bench SUBJECT [--help]\n")
        for name, line in SUBJECTS.items():
            print(f"  {name:12} {line}")
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    root = Path(__file__).resolve().parents[1]
    if not (root / "benchmarks" / "__init__.py").is_file():
        raise ValueError("the benchmarks come with the repository: clone it and run this there")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    status: int = importlib.import_module(f"benchmarks.{argv[0]}").main(argv[1:])
    return status
