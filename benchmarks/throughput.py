"""`minillm-serve bench throughput`: many requests at once, beside transformers, in one run."""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.systems import System, load_transformers, ours, transformers_static
from benchmarks.workloads import Job, w1, w2
from minillm_serve import LLM
from minillm_serve.stamp import stamp

WORKLOADS = {"w1": w1, "w2": w2}
ONE_AT_A_TIME, STATIC, OURS = "transformers, one at a time", "transformers, batches", "ours"


def main(argv: Sequence[str]) -> int:
    """Measures, prints a table, writes JSON."""
    options = _parse(argv)
    jobs = WORKLOADS[options.workload](options.requests)
    llm = LLM(options.model, dtype="float32")
    model = load_transformers(llm.model_path)
    # One at a time is slow and every request costs the same wherever it stands: a sample will do.
    subjects: dict[str, tuple[System, list[Job]]] = {
        OURS: (ours(llm), jobs),
        f"{STATIC} of {options.static}": (transformers_static(model, options.static), jobs),
        ONE_AT_A_TIME: (transformers_static(model, 1), jobs[: options.sample]),
    }
    rates: dict[str, list[float]] = {name: [] for name in subjects}
    for system, _ in subjects.values():
        system([Job(job.prompt[:32], 4) for job in jobs[:2]])  # compiled and warm
    for turn in range(options.repeat):
        for name, (system, work) in subjects.items():
            tokens = sum(job.output_len for job in work)
            rates[name].append(tokens / system(work))
            print(f"run {turn + 1}: {name:32} {rates[name][-1]:7.1f} output tok/s", flush=True)
    _report(options, rates)
    return 0


def _report(options: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print(f"\n{options.workload}, medians of {options.repeat}, fp32")
    for name, median in medians.items():
        print(f"{name:32} {median:7.1f} output tok/s   ours is {medians[OURS] / median:5.2f} x")
    if options.output:
        record = {
            "stamp": stamp(seed=0, workload=options.workload, requests=options.requests),
            "output_tok_s": rates,
            "median": medians,
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {options.output}")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="minillm-serve bench throughput", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="w1")
    parser.add_argument("--requests", type=int, default=64, help="requests (%(default)s)")
    parser.add_argument("--static", type=int, default=16, help="peer's batch size (%(default)s)")
    parser.add_argument(
        "--sample", type=int, default=6, help="requests served one at a time (%(default)s)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs (%(default)s)")
    parser.add_argument("--output", type=Path, help="write JSON here")
    return parser.parse_args(argv)
