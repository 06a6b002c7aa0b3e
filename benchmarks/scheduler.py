"""`minillm-serve bench scheduler`: what a step costs the scheduler, with few and many waiting."""

import argparse
import json
import statistics
import time
from collections.abc import Sequence as Items
from pathlib import Path

from minillm_serve.core import (
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    Request,
    SamplingParams,
    Sequence,
    SequenceOutput,
    StepResult,
)
from minillm_serve.stamp import stamp

RUNNING, PROMPT_LEN, BLOCK_SIZE = 256, 64, 16


def main(argv: Items[str]) -> int:
    """Times `schedule()` + `commit()` with 256 running and ever more waiting."""
    parser = argparse.ArgumentParser(prog="minillm-serve bench scheduler", description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[256, 10_000, 100_000])
    parser.add_argument("--steps", type=int, default=200, help="steps timed (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="runs (%(default)s)")
    parser.add_argument("--output", type=Path, help="write JSON here")
    options = parser.parse_args(argv)
    runs: dict[int, list[float]] = {count: [] for count in options.waiting}
    for _ in range(options.repeat):
        for count in options.waiting:
            runs[count].append(seconds_a_step(count, options.steps))
    medians = {count: statistics.median(values) for count, values in runs.items()}
    base = medians[options.waiting[0]]
    for count, median in medians.items():
        print(f"{count:8} waiting: {median * 1e6:8.0f} us a step, {median / base:5.2f} x")
    if options.output:
        record = {"stamp": stamp(), "running": RUNNING, "seconds_a_step": runs}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def seconds_a_step(num_waiting: int, steps: int) -> float:
    """Median seconds of `schedule` + `commit`, in which one sequence ends and one comes in."""
    blocks = BlockManager(BlockPool(RUNNING * 64), BLOCK_SIZE)
    scheduler = ContinuousScheduler(
        blocks, max_num_seqs=RUNNING, max_num_batched_tokens=8192, max_len=1024
    )
    prompt = (1,) * PROMPT_LEN
    for index in range(RUNNING + num_waiting):
        # Lengths differ, so that about one of those who run ends in each step.
        params = SamplingParams(max_tokens=1 + index % RUNNING if index < RUNNING else RUNNING)
        scheduler.add(
            Sequence(Request(request_id=str(index), prompt_token_ids=prompt, params=params))
        )
    times = []
    while len(times) < steps:
        began = time.perf_counter()
        batch = scheduler.schedule()
        chosen = time.perf_counter()
        output = StepResult(
            tuple(SequenceOutput((7,) if s.samples else ()) for s in batch.scheduled)
        )
        executed = time.perf_counter()
        scheduler.commit(batch, output)
        times.append(chosen - began + time.perf_counter() - executed)
    return statistics.median(times)
