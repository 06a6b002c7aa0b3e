"""`minillm-serve bench throughput`: many requests at once, beside transformers, in one run."""

from collections.abc import Sequence

from benchmarks.report import Comparison, add_quantization, parser, positive
from benchmarks.systems import (
    System,
    load_transformers,
    ours,
    ours_quantized,
    transformers_static,
    warm_up,
)
from benchmarks.workloads import Job, w1, w2
from minillm_serve import LLM

WORKLOADS = {"w1": w1, "w2": w2}


def main(argv: Sequence[str]) -> int:
    """Measures, prints a table, writes JSON."""
    options = parser("throughput", __doc__)
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--workload", choices=sorted(WORKLOADS), default="w1")
    options.add_argument("--requests", type=positive, help="requests (w1: 64, w2: 48)")
    options.add_argument(
        "--static", type=positive, default=16, help="peer's batch size (%(default)s)"
    )
    options.add_argument(
        "--sample", type=positive, default=6, help="requests served one at a time (%(default)s)"
    )
    add_quantization(options)
    chosen = options.parse_args(argv)
    workload = WORKLOADS[chosen.workload]
    jobs = workload(chosen.requests) if chosen.requests else workload()
    llm = LLM(chosen.model, dtype="float32")
    without = LLM(chosen.model, dtype="float32", prefix_cache=None)
    model = load_transformers(llm.model_path)
    quantized = ours_quantized(chosen.model, chosen.quantization)
    subjects: dict[str, tuple[System, list[Job]]] = {
        **{name: (system, jobs) for name, system in quantized.items()},
        "ours": (ours(llm), jobs),
        "ours, no prefix cache": (ours(without), jobs),
        f"transformers, batches of {chosen.static}": (
            transformers_static(model, chosen.static),
            jobs,
        ),
        # Slow, and every request costs what it costs wherever it stands: a sample will do.
        "transformers, one at a time": (transformers_static(model, 1), jobs[: chosen.sample]),
    }
    warm_up([system for system, _ in subjects.values()], jobs)
    rates: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(chosen.repeat):
        for name, (system, work) in subjects.items():
            rates[name].append(sum(job.output_len for job in work) / system(work))
            print(f"run {turn + 1}: {name:32} {rates[name][-1]:7.1f} output tok/s", flush=True)
    kind = "" if chosen.quantization else ", fp32"
    result = Comparison(
        f"{chosen.workload.upper()}: {len(jobs)} requests at once{kind}",
        "output tok/s",
        rates,
        context={"workload": chosen.workload, "requests": len(jobs), "seed": 0},
    )
    print(result.table())
    if chosen.output:
        result.save(chosen.output)
    return 0
