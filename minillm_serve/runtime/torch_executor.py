"""Runs batches with torch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, StepResult
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime.attention.base import AttentionBackend, PagedAttention
from minillm_serve.runtime.inputs import StepInputs, build_inputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.sampling.outputs import read_logits


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A handle on a step that has run already."""

    result: StepResult

    def wait(self) -> StepResult:
        """The result, at once."""
        return self.result


class TorchExecutor:
    """Implements `core.executor.Executor` on a model and a KV cache.

    Args:
        model: in evaluation mode, on the cache's device.
        kv_cache: sized like the scheduler's pool.
        backend: attends.
    """

    def __init__(self, model: Transformer, kv_cache: KVCache, backend: AttentionBackend) -> None:
        self.model = model
        self.kv_cache = kv_cache
        self.backend = backend
        self.device = kv_cache.k[0].device

    def submit(self, batch: Batch) -> FinishedStep:
        """Runs the step."""
        with torch.inference_mode():
            inputs = build_inputs(batch, block_size=self.kv_cache.block_size, device=self.device)
            logits = self.forward(inputs)
            return FinishedStep(StepResult(read_logits(logits, batch, inputs)))

    def forward(self, inputs: StepInputs) -> Tensor:
        """Logits [R, V] of `inputs.logit_rows`."""
        config = self.model.config
        attend = PagedAttention(
            self.backend,
            self.kv_cache,
            inputs.attention,
            scale=config.head_dim**-0.5,
            windows=config.sliding_windows,
        )
        hidden = self.model(inputs.token_ids, inputs.positions, attend)
        return self.model.logits(hidden[inputs.logit_rows])
