"""`minillm-serve bench profile`: where the time of a step goes, part by part."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.report import Comparison, parser, positive
from benchmarks.systems import ours, warm_up
from benchmarks.workloads import Job, single, w1
from minillm_serve import LLM
from minillm_serve.core.engine import EngineCore
from minillm_serve.core.scheduler import ContinuousScheduler
from minillm_serve.models import layers, transformer
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime import torch_executor
from minillm_serve.runtime.attention.cpu import CpuAttention

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


def main(argv: Sequence[str]) -> int:
    """Profiles many users at once (W1) and one user alone."""
    options = parser("profile", __doc__)
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--output-len", type=positive, help="shorten the outputs, to try it out")
    chosen = options.parse_args(argv)
    llm = LLM(chosen.model, dtype="float32")
    run = ours(llm)
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
