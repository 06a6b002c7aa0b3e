"""Runs batches with torch."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, StepResult
from minillm_serve.core.request import Sequence
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    FusedPagedAttention,
    PagedAttention,
)
from minillm_serve.runtime.cuda_graphs import GraphRunner
from minillm_serve.runtime.device import Arrival, working_on
from minillm_serve.runtime.host_blocks import HostBlocks
from minillm_serve.runtime.inputs import StepInputs, build_inputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.sampling.outputs import Reading, read_logits
from minillm_serve.runtime.threads import share_threads


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A handle on a step that a device works on; on a CPU it has run already."""

    reading: Reading
    arrival: Arrival

    def wait(self) -> StepResult:
        """The result, when it has arrived."""
        self.arrival.wait()
        return StepResult(self.reading.outputs())


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A handle on a step that a thread of ours works on."""

    future: Future[StepResult]

    def wait(self) -> StepResult:
        """The result, when there is one."""
        return self.future.result()


class TorchExecutor:
    """Implements `core.executor.Executor` on a model and a KV cache.

    A GPU works through what it is told by itself, so `submit` returns while a step runs. On a CPU
    it is we who work: `threaded` moves that to a thread.

    A sampled token that the next step needs stays on the device; the host reads it as well, later.

    Args:
        model: in evaluation mode, on the cache's device.
        kv_cache: sized like the scheduler's pool.
        backend: attends.
        max_model_len: no position reaches it; by default the model's own limit.
        threaded: run steps in a thread, in the order of their submission.
        make_graphs: records decode steps, given what runs one.
        host_blocks: where preempted sequences' blocks go, if they are swapped at all.
    """

    def __init__(
        self,
        model: Transformer,
        kv_cache: KVCache,
        backend: AttentionBackend,
        *,
        max_model_len: int | None = None,
        threaded: bool = False,
        make_graphs: Callable[[Callable[[StepInputs], Tensor]], GraphRunner] | None = None,
        host_blocks: HostBlocks | None = None,
    ) -> None:
        self.model = model
        self.kv_cache = kv_cache
        self.backend = backend
        self.host_blocks = host_blocks
        self.device = kv_cache.k[0].device
        length = max_model_len or model.config.max_position_embeddings
        self.write_rotated = backend.rotating_writer(model.frequencies, length)
        with working_on(self.device):
            self.graphs = make_graphs(self.forward) if make_graphs is not None else None
        self._thread = ThreadPoolExecutor(1, initializer=share_threads) if threaded else None
        # Which sample of the step submitted last is whose; and of the step run last, the samples.
        self._rows: dict[Sequence, int] = {}
        self._tokens: Tensor | None = None

    def submit(self, batch: Batch) -> RunningStep | QueuedStep:
        """Starts the step."""
        with working_on(self.device):
            return self._submit(batch)

    def _submit(self, batch: Batch) -> RunningStep | QueuedStep:
        inputs = build_inputs(
            batch,
            block_size=self.kv_cache.block_size,
            device=self.device,
            before=self._rows,
            padding=self.graphs.padding_for(batch) if self.graphs is not None else None,
            cascade=self.backend.capabilities.cascade,
        )
        rows = {batch.scheduled[index].sequence: row for row, index in enumerate(inputs.sampled)}
        if self._thread is None:
            step: RunningStep | QueuedStep = self._run(inputs, batch)
        else:
            step = QueuedStep(self._thread.submit(lambda: self._run(inputs, batch).wait()))
        self._rows = rows
        return step

    @torch.inference_mode()
    def _run(self, inputs: StepInputs, batch: Batch) -> RunningStep:
        self._copy_blocks(batch)
        before, self._tokens = self._tokens, None
        if before is not None and len(inputs.pending_rows):
            inputs.token_ids[inputs.pending_rows] = before[inputs.pending_from]
        if self.graphs is not None and inputs.is_padded:
            logits = self.graphs.run(inputs)
        else:
            logits = self.forward(inputs)
        last = inputs.token_ids[inputs.logit_rows[: len(inputs.sampled)]]
        reading = read_logits(logits, inputs, last)
        self._tokens = reading.tokens
        return RunningStep(reading.to_host(), Arrival(self.device))

    def _copy_blocks(self, batch: Batch) -> None:
        """In the order that `core.executor.Executor` asks for."""
        if self.host_blocks is not None:
            self.host_blocks.swap(batch.blocks_to_swap_out, ())
        self.kv_cache.copy_blocks(batch.blocks_to_copy)
        if self.host_blocks is not None:
            self.host_blocks.swap((), batch.blocks_to_swap_in)

    def forward(self, inputs: StepInputs) -> Tensor:
        """Logits [R, V] of `inputs.logit_rows`."""
        config = self.model.config
        paged = PagedAttention(
            self.backend,
            self.kv_cache,
            inputs.attention,
            scale=config.head_dim**-0.5,
            windows=config.sliding_windows,
        )
        attend: PagedAttention | FusedPagedAttention = paged
        if self.write_rotated is not None:
            attend = FusedPagedAttention(paged, inputs.positions, self.write_rotated)
        hidden = self.model(inputs.token_ids, inputs.positions, attend)
        return self.model.logits(hidden[inputs.logit_rows])
