"""The systems under measurement, each behind one call: run these jobs, say how long it took."""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.workloads import Job
from minillm_serve import LLM, SamplingParams
from minillm_serve.models.layers import Linear
from minillm_serve.runtime.torch_executor import TorchExecutor

#: Runs jobs to their end; seconds.
System = Callable[[list[Job]], float]


def ours(llm: LLM) -> System:
    """This engine; it remembers no prompt of an earlier run."""

    def run(jobs: list[Job]) -> float:
        params = [
            SamplingParams(temperature=0, max_tokens=job.output_len, ignore_eos=True)
            for job in jobs
        ]
        llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate([job.prompt for job in jobs], params, use_tqdm=False)
        seconds = time.perf_counter() - began
        _check([len(o.outputs[0].token_ids) for o in outputs], jobs)
        return seconds

    return run


def ours_quantized(model: str, schemes: list[str]) -> dict[str, System]:
    """This engine on quantized weights, by name."""
    return {
        f"ours, {scheme}": ours(LLM(model, dtype="float32", quantization=scheme))
        for scheme in schemes
    }


def ours_without_codes(llm: LLM) -> System:
    """This engine, reading every weight as float32: what it does for models that have no codes."""
    executor = llm.engine.executor
    assert isinstance(executor, TorchExecutor)
    linears = [module for module in executor.model.modules() if isinstance(module, Linear)]

    def run(jobs: list[Job]) -> float:
        codes = [linear.coded for linear in linears]
        for linear in linears:
            linear.coded = None
        try:
            return ours(llm)(jobs)
        finally:
            for linear, coded in zip(linears, codes, strict=True):
                linear.coded = coded

    return run


def transformers_static(model: PreTrainedModel, batch_size: int) -> System:
    """transformers' `generate` over batches padded on the left, each run to its longest output.

    `batch_size=1` is one request at a time.
    """

    def run(jobs: list[Job]) -> float:
        began = time.perf_counter()
        for first in range(0, len(jobs), batch_size):
            batch = jobs[first : first + batch_size]
            longest = max(len(job.prompt) for job in batch)
            ids = torch.zeros(len(batch), longest, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, job in enumerate(batch):
                ids[row, longest - len(job.prompt) :] = torch.tensor(job.prompt)
                mask[row, longest - len(job.prompt) :] = 1
            steps = max(job.output_len for job in batch)
            with torch.inference_mode():
                out = model.generate(
                    ids,
                    attention_mask=mask,
                    max_new_tokens=steps,
                    min_new_tokens=steps,
                    do_sample=False,
                    pad_token_id=0,
                )
            _check([out.shape[1] - longest] * len(batch), [Job([], steps)] * len(batch))
        return time.perf_counter() - began

    return run


def warm_up(systems: list[System], jobs: list[Job]) -> None:
    """Lets every system compile and touch what it needs before anything is timed."""
    for system in systems:
        system([Job(job.prompt[:32], 4) for job in jobs[:2]])


def load_transformers(path: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The same weights, in transformers."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


def _check(lengths: list[int], jobs: list[Job]) -> None:
    wanted = [job.output_len for job in jobs]
    if lengths != wanted:
        raise RuntimeError(f"generated {lengths} tokens instead of {wanted}: not comparable")
