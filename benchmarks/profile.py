"""`minillm-serve bench profile`: where the time of a step goes, part by part."""

import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.products import products_of, seconds_of
from benchmarks.report import Comparison, parser, positive
from benchmarks.systems import System, ours, warm_up
from benchmarks.workloads import Job, single, w1
from minillm_serve import LLM
from minillm_serve.core.engine import EngineCore
from minillm_serve.core.scheduler import ContinuousScheduler
from minillm_serve.models import layers, transformer
from minillm_serve.models.schemes import SCHEMES
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime import torch_executor
from minillm_serve.runtime.attention.cpu import CpuAttention
from minillm_serve.runtime.torch_executor import TorchExecutor

#: (owner, name, part). A part that runs inside another one is taken off the outer one.
PARTS: list[tuple[Any, str, str]] = [
    (EngineCore, "step", "engine, the rest"),
    (ContinuousScheduler, "schedule", "schedule and commit"),
    (ContinuousScheduler, "commit", "schedule and commit"),
    (torch_executor, "build_inputs", "inputs"),
    (torch_executor, "read_logits", "sampling"),
    (Transformer, "forward", "model, the rest"),
    (layers.Linear, "forward", "linear layers"),
    (layers, "rms_norm", "norms"),
    (layers, "add_rms_norm", "norms"),
    (transformer, "rotate", "rotation"),
    (transformer, "silu_mul", "activation"),
    (CpuAttention, "run", "attention"),
    (CpuAttention, "write", "KV writes"),
]


class Stopwatch:
    """Adds up the time spent in each part, nested parts taken off."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with its own time added to a part."""

        def wrapper(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                took = time.perf_counter() - began
                self.seconds[part] += took - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took

        return wrapper


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Times the parts of every engine in this process while it is open."""
    watch = Stopwatch()
    with ExitStack() as stack:
        for owner, name, part in PARTS:
            stack.enter_context(patch.object(owner, name, watch.timed(part, getattr(owner, name))))
        yield watch


def share_outside(llm: LLM, run: System, steps: int, repeat: int) -> dict[str, list[float]]:
    """Where the time of a step for one user goes, by subtraction.

    A step of a quantized model is one function, so that there are no parts to put a watch on. Its
    products are timed apart, on the same weights in the same order; so the processor's caches help
    them no more than in a step.

    Args:
        llm: with quantized weights.
        run: the same, as a system.
        steps: tokens that are decoded.
        repeat: how often.

    Returns:
        ms a step, ms for its products, and the share of a step that is none of theirs in percent.
    """
    executor = llm.engine.executor
    assert isinstance(executor, TorchExecutor)
    products, prompt = products_of(executor.model), single()[0].prompt
    found: dict[str, list[float]] = {"step, ms": [], "products, ms": [], "outside of them, %": []}
    for _ in range(repeat):
        first = run([Job(prompt, 1)])
        step = (run([Job(prompt, steps + 1)]) - first) / steps
        inside = seconds_of(products)
        for values, value in zip(
            found.values(), (1e3 * step, 1e3 * inside, 100 * (1 - inside / step)), strict=True
        ):
            values.append(value)
    return found


def _profile_quantized(llm: LLM, run: System, chosen: Namespace) -> int:
    warm_up([run], single())
    steps = chosen.output_len or 127
    title = f"one user, {chosen.quantization}: a step"
    result = Comparison(title, "ms or %", share_outside(llm, run, steps, chosen.repeat), False)
    print(title)
    for part, median in result.medians.items():
        values = result.values[part]
        print(f"  {part:22} {median:6.2f}  [{min(values):.2f} .. {max(values):.2f}]")
    if chosen.output:
        result.save(chosen.output)
    return 0


def main(argv: Sequence[str]) -> int:
    """Profiles many users at once (W1) and one user alone."""
    options = parser("profile", __doc__)
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--output-len", type=positive, help="shorten the outputs, to try it out")
    options.add_argument("--quantization", choices=SCHEMES, help="weights in 8 or 4 bits")
    chosen = options.parse_args(argv)
    llm = LLM(chosen.model, dtype="float32", quantization=chosen.quantization)
    run = ours(llm)
    if chosen.quantization:
        return _profile_quantized(llm, run, chosen)
    warm_up([run], w1())
    for title, jobs in (("W1", w1()), ("one user", single())):
        if chosen.output_len:
            jobs = [Job(job.prompt, chosen.output_len) for job in jobs]
        parts: dict[str, list[float]] = defaultdict(list)
        for _ in range(chosen.repeat):
            with stopwatch() as watch:
                total = run(jobs)
            for part, seconds in watch.seconds.items():
                parts[part].append(100 * seconds / total)
        ordered = dict(sorted(parts.items(), key=lambda item: -max(item[1])))
        result = Comparison(f"{title}: {total:.1f} s", "% of the time", ordered)
        print(f"\n{result.title}")
        for part, median in result.medians.items():
            print(f"  {part:22} {median:5.1f} %")
        if chosen.output:
            result.save(chosen.output.with_stem(f"{chosen.output.stem}_{title.split()[0].lower()}"))
    return 0
