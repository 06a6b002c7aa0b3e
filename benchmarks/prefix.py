"""`minillm-serve bench prefix`: what a prefix cache costs where it finds nothing."""

import time
from collections.abc import Sequence

from benchmarks.report import Comparison, parser, positive
from benchmarks.workloads import Job, w1
from minillm_serve.core import (
    PREFIX_CACHES,
    Admission,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    EngineCore,
    MakePrefixCache,
    Request,
    SamplingParams,
)
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.executor import SimClock, SimExecutor

HARDWARE_NAME, MODEL_NAME = "H200 SXM", "Llama-3-8B"
BLOCK_SIZE, RUNNING, MAX_LEN = 16, 64, 512
NUM_BLOCKS = RUNNING * MAX_LEN // BLOCK_SIZE
SYSTEMS: dict[str, MakePrefixCache | None] = {"no cache": None, **PREFIX_CACHES}


def main(argv: Sequence[str]) -> int:
    """Serves random prompts with each cache, on a simulated GPU, and times the engine itself.

    So what differs is the index alone: looking up, publishing, and evicting all of it.
    """
    options = parser("prefix", __doc__)
    options.add_argument("--requests", type=positive, default=512, help="prompts (%(default)s)")
    chosen = options.parse_args(argv)
    jobs = w1(chosen.requests)
    tokens = sum(len(job.prompt) + job.output_len for job in jobs)
    times: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    seconds(jobs, None)  # the first run of anything is slow
    for _ in range(chosen.repeat):
        for name, make in SYSTEMS.items():
            spent, simulated = seconds(jobs, make)
            times[name].append(spent / tokens * 1e6)
    result = Comparison(
        f"the engine without a model, {chosen.requests} prompts without hits",
        "us a token",
        times,
        higher_is_better=False,
        context={"requests": chosen.requests, "block_size": BLOCK_SIZE},
    )
    print(result.table())
    step = simulated / tokens * 1e6
    print(f"A token takes {step:.1f} us on a simulated {HARDWARE_NAME} with {MODEL_NAME}.")
    for name in PREFIX_CACHES:
        extra = result.medians[name] - result.medians["no cache"]
        print(f"  {name}: {extra:+.2f} us a token for the index, {extra / step:.1%} of that")
    if chosen.output:
        result.save(chosen.output)
    return 0


def seconds(jobs: list[Job], make: MakePrefixCache | None) -> tuple[float, float]:
    """Real seconds that the engine takes to serve all jobs, and simulated ones of its steps."""
    cache = None if make is None else make(BLOCK_SIZE)
    blocks = BlockManager(BlockPool(NUM_BLOCKS), BLOCK_SIZE, prefix_cache=cache)
    admission = Admission(max_model_len=MAX_LEN, pool_tokens=blocks.capacity, vocab_size=50_000)
    policy = ContinuousScheduler(
        blocks, max_num_seqs=RUNNING, max_num_batched_tokens=512, max_len=admission.max_len
    )
    clock = SimClock()
    cost = CostModel(HARDWARE[HARDWARE_NAME], MODELS[MODEL_NAME])
    engine = EngineCore(policy, SimExecutor(cost, clock, BLOCK_SIZE), admission, clock=clock)
    for index, job in enumerate(jobs):
        params = SamplingParams(max_tokens=job.output_len)
        prompt = tuple(job.prompt)
        engine.add_request(Request(request_id=str(index), prompt_token_ids=prompt, params=params))
    began = time.perf_counter()
    while engine.has_unfinished:
        engine.step()
    assert engine.prefix_stats.hits == 0
    return time.perf_counter() - began, clock.now
