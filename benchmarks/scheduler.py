"""`minillm-serve bench scheduler`: what a step costs the scheduler, with few and many waiting."""

import statistics
import time
from collections.abc import Sequence as Items

from benchmarks.report import Comparison, parser, positive
from minillm_serve.core import (
    POLICIES,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    Policy,
    Request,
    SamplingParams,
    Sequence,
    SequenceOutput,
    StepResult,
)

RUNNING, PROMPT_LEN, BLOCK_SIZE = 256, 64, 16


def main(argv: Items[str]) -> int:
    """Times `schedule()` + `commit()` with 256 running and ever more waiting."""
    options = parser("scheduler", __doc__)
    options.add_argument("--waiting", type=positive, nargs="+", default=[256, 10_000, 100_000])
    options.add_argument("--policy", choices=sorted(POLICIES), default="fcfs", help="%(default)s")
    options.add_argument("--steps", type=positive, default=200, help="steps timed (%(default)s)")
    chosen = options.parse_args(argv)
    times: dict[str, list[float]] = {f"{count} waiting": [] for count in chosen.waiting}
    for _ in range(chosen.repeat):
        for count in chosen.waiting:
            spent = seconds_a_step(count, chosen.steps, POLICIES[chosen.policy]())
            times[f"{count} waiting"].append(spent * 1e6)
    result = Comparison(
        f"schedule() + commit(), {RUNNING} running, {chosen.policy}",
        "us a step",
        times,
        higher_is_better=False,
        context={"running": RUNNING, "policy": chosen.policy},
    )
    print(result.table())
    if chosen.output:
        result.save(chosen.output)
    return 0


def seconds_a_step(num_waiting: int, steps: int, policy: Policy) -> float:
    """Median seconds of `schedule` + `commit`, in which one sequence ends and one comes in."""
    blocks = BlockManager(BlockPool(RUNNING * 64), BLOCK_SIZE)
    scheduler = ContinuousScheduler(
        blocks, max_num_seqs=RUNNING, max_num_batched_tokens=8192, max_len=1024, policy=policy
    )
    prompt = (1,) * PROMPT_LEN
    for index in range(RUNNING + num_waiting):
        # Lengths differ, so that about one of those who run ends in each step.
        params = SamplingParams(max_tokens=1 + index % RUNNING if index < RUNNING else RUNNING)
        # Under every policy they go first.
        priority = index % 5 if index >= RUNNING else -9
        name = str(index)
        request = Request(
            request_id=name, prompt_token_ids=prompt, params=params, priority=priority
        )
        scheduler.add(Sequence(request))
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
