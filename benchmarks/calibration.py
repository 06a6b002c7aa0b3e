"""`minillm-serve bench calibration`: does the simulator's cost model foretell real steps?

Two constants are fitted to some measured steps; other steps are then predicted and measured.
"""

import json
import statistics
from collections.abc import Sequence

from benchmarks.report import parser
from benchmarks.workloads import w1
from minillm_serve import LLM, SamplingParams
from minillm_serve.core import StepRecord
from minillm_serve.runtime.torch_executor import TorchExecutor
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.measure import measured_cpu
from minillm_serve.sim.shapes import ModelShape
from minillm_serve.stamp import stamp

#: Batch sizes that fix the constants, and batch sizes that are foretold.
FITTED, FORETOLD = (2, 8, 24, 48), (1, 4, 16, 32)
PROMPT_TOKENS, STEPS = 128, 24


def main(argv: Sequence[str]) -> int:
    """Prints predicted and measured seconds a step, and how far apart they are."""
    options = parser("calibration", __doc__)
    options.add_argument("--model", default="smollm2-135m")
    chosen = options.parse_args(argv)
    llm = LLM(
        chosen.model, max_num_seqs=max(FITTED), max_num_batched_tokens=8192, prefix_cache=None
    )
    decode_steps(llm, 2)  # compiles what has to be compiled
    # Sizes take turns, so that a machine that slows down slows all of them.
    steps: dict[int, list[tuple[Work, float]]] = {batch: [] for batch in (*FITTED, *FORETOLD)}
    for _ in range(chosen.repeat):
        for batch, measured in steps.items():
            measured.append(decode_steps(llm, batch))
    typical = {
        batch: (measured[0][0], statistics.median(time for _, time in measured))
        for batch, measured in steps.items()
    }
    bare = CostModel(
        measured_cpu(), ModelShape.from_model_config(llm.model_config), weight_bits=32, kv_bits=32
    )
    model = bare.fitted([typical[batch] for batch in FITTED])
    print(
        f"Fitted on batches of {', '.join(map(str, FITTED))}: memory at "
        f"{model.memory_efficiency:.0%} of its measured bandwidth, arithmetic at "
        f"{model.compute_efficiency:.0%} of its measured peak.\n"
        f"(At 4 bytes a weight. Where weights are kept as codes, fewer are read: "
        f"{bytes_a_weight(llm):.1f} here.)"
    )
    rows = []
    for batch in FORETOLD:
        work, seconds = typical[batch]
        error = model.seconds(work) / seconds - 1
        rows.append({"batch": batch, "predicted_s": model.seconds(work), "measured_s": seconds})
        print(
            f"  batch {batch:3}: predicted {model.seconds(work) * 1e3:6.1f} ms, "
            f"measured {seconds * 1e3:6.1f} ms, {error:+.0%}"
        )
    if chosen.output:
        record = {
            "stamp": stamp(prompt=PROMPT_TOKENS),
            "memory_efficiency": model.memory_efficiency,
            "compute_efficiency": model.compute_efficiency,
            "foretold": rows,
        }
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {chosen.output}")
    return 0


def bytes_a_weight(llm: LLM) -> float:
    """Bytes that a step of few rows reads, for each parameter of a matrix."""
    executor = llm.engine.executor
    assert isinstance(executor, TorchExecutor)
    shape = ModelShape.from_model_config(llm.model_config)
    return executor.model.bytes_read / shape.streamed_parameters


def decode_steps(llm: LLM, batch: int) -> tuple[Work, float]:
    """The work of a typical decode step of a batch, and its median seconds."""
    records: list[StepRecord] = []
    llm.engine.on_step = records.append
    try:
        prompt = (w1()[0].prompt * PROMPT_TOKENS)[:PROMPT_TOKENS]
        params = SamplingParams(temperature=0, max_tokens=STEPS, ignore_eos=True)
        llm.generate([prompt] * batch, params, use_tqdm=False)
    finally:
        llm.engine.on_step = None
    decodes = [r for r in records if r.num_tokens == r.num_sampled == batch]
    middle = sorted(decodes, key=lambda r: r.ended - r.began)[len(decodes) // 2]
    work = Work(batch, batch, batch, middle.tokens_stored, middle.tokens_stored)
    return work, middle.ended - middle.began
