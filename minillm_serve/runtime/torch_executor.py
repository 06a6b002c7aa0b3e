"""Runs batches with torch."""

import threading
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, StepResult
from minillm_serve.core.request import Sequence
from minillm_serve.models.transformer import Transformer
from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.cuda_graphs import GraphRunner
from minillm_serve.runtime.device import Arrival, working_on
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.host_blocks import HostBlocks
from minillm_serve.runtime.inputs import StepInputs, build_inputs
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.sampling.outputs import Reading, read_logits
from minillm_serve.runtime.spec.drafter import Drafter
from minillm_serve.runtime.spec.fill_in import fill_in
from minillm_serve.runtime.spec.verify import PAPERS_RULE, Rule
from minillm_serve.runtime.structured.constrain import constrain
from minillm_serve.runtime.structured.matchers import Matchers
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

    With a drafter a step is three: drafts are made, verified together with everything else, and the
    drafter looks at what the model made of them. (How many were right must be known before the next
    step is scheduled, so that steps do not overlap then.)

    Args:
        model: in evaluation mode, on the cache's device.
        kv_cache: sized like the scheduler's pool.
        backend: attends.
        max_model_len: no position reaches it; by default the model's own limit.
        threaded: run steps in a thread, in the order of their submission. Not with a drafter.
        make_graphs: records decode steps, given what runs one.
        host_blocks: where preempted sequences' blocks go, if they are swapped at all: of the cache,
            and of the drafter's.
        drafter: makes drafts, where the scheduler has room for any.
        rule: by which drafts stay.
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
        host_blocks: Items[HostBlocks] = (),
        drafter: Drafter | None = None,
        rule: Rule = PAPERS_RULE,
    ) -> None:
        if threaded and drafter is not None:
            raise ValueError("a drafter needs each step's result before the next: not threaded")
        self.model = model
        self.kv_cache = kv_cache
        self.backend = backend
        self.host_blocks = host_blocks
        self.drafter = drafter
        self.rule = rule
        self.device = kv_cache.k[0].device
        self._matchers = Matchers()
        # Numbers of threads belong to threads, and steps may come from any: see `share_threads`.
        self._num_threads = torch.get_num_threads()
        self._prepared = threading.local()
        self._forward = Forward(model, kv_cache, backend, max_model_len=max_model_len)
        with working_on(self.device):
            self.graphs = make_graphs(self.forward) if make_graphs is not None else None
        self._thread = ThreadPoolExecutor(1) if threaded else None
        # Which sample of the step submitted last is whose; and of the step run last, the samples.
        self._rows: dict[Sequence, int] = {}
        self._tokens: Tensor | None = None

    def submit(self, batch: Batch) -> RunningStep | QueuedStep:
        """Starts the step."""
        with working_on(self.device):
            return self._submit(batch)

    @torch.inference_mode()
    def _submit(self, batch: Batch) -> RunningStep | QueuedStep:
        drawn: dict[Sequence, Tensor] = {}
        if self._thread is None:
            self._copy_blocks(batch)
        if self.drafter is not None:
            batch, drawn = fill_in(batch, self.drafter)
        inputs = build_inputs(
            batch,
            block_size=self.kv_cache.block_size,
            device=self.device,
            before=self._rows,
            padding=self.graphs.padding_for(batch) if self.graphs is not None else None,
            cascade=self.backend.capabilities.cascade,
        )
        samplers = [batch.scheduled[index].sequence for index in inputs.sampled]
        self._rows = dict(zip(samplers, inputs.first_choices, strict=False))
        if self._thread is not None:
            return QueuedStep(self._thread.submit(self._run_later, inputs, batch))
        probs = {s: drawn[sequence] for s, sequence in enumerate(samplers) if sequence in drawn}
        return self._run(inputs, batch, probs)

    @torch.inference_mode()
    def _run_later(self, inputs: StepInputs, batch: Batch) -> StepResult:
        self._copy_blocks(batch)
        return self._run(inputs, batch, {}).wait()

    def _run(self, inputs: StepInputs, batch: Batch, drawn: Mapping[int, Tensor]) -> RunningStep:
        if self.device.type == "cpu" and not hasattr(self._prepared, "here"):
            self._prepared.here = True
            share_threads(self._num_threads)
        before, self._tokens = self._tokens, None
        if before is not None and len(inputs.pending_rows):
            inputs.token_ids[inputs.pending_rows] = before[inputs.pending_from]
        last = inputs.token_ids[inputs.logit_rows[: len(inputs.choices)]]
        # Grammars must know these tokens, which travel while the step runs.
        known = last.to("cpu", non_blocking=True) if inputs.guided else None
        arrival = Arrival(self.device) if inputs.guided else None
        if self.graphs is not None and inputs.is_padded:
            hidden = self.graphs.run(inputs)
        else:
            hidden = self.forward(inputs)
        if self.drafter is not None:
            # The drafter may keep rows for later; a replay writes the same memory each time.
            kept = hidden.clone() if inputs.is_padded else hidden
            self.drafter.observe(batch, inputs, kept)
        logits = self.model.logits(hidden[inputs.logit_rows])
        faults: Mapping[int, int] = {}
        if known is not None and arrival is not None:
            arrival.wait()
            masks = self._matchers.masks(inputs.guided, known.tolist())
            logits, inputs, faults = constrain(logits, inputs, masks)
        reading = read_logits(logits, inputs, last, drawn, self.rule, faults)
        self._tokens = reading.tokens
        return RunningStep(reading.to_host(), Arrival(self.device))

    def forward(self, inputs: StepInputs) -> Tensor:
        """What the model makes of a step's rows, before the output head: [T, hidden]."""
        return self._forward.hidden(inputs.token_ids, inputs.positions, inputs.attention)

    def _copy_blocks(self, batch: Batch) -> None:
        """In the order that `core.executor.Executor` asks for; what drafters keep goes along."""
        for host in self.host_blocks:
            host.swap(batch.blocks_to_swap_out, ())
        self.kv_cache.copy_blocks(batch.blocks_to_copy)
        if self.drafter is not None and self.drafter.kv_cache is not None:
            self.drafter.kv_cache.copy_blocks(batch.blocks_to_copy)
        for host in self.host_blocks:
            host.swap((), batch.blocks_to_swap_in)
