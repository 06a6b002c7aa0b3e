"""Decode steps recorded once as CUDA graphs and replayed: a whole step is then a single launch.

A decode step of a small model is some hundreds of kernels of a few microseconds each, and starting
one from Python takes as long. A graph can only replay what it recorded: the same kernels over the
same addresses. So there is one for each of a few batch sizes (buckets), inputs are copied to fixed
places, and a batch is filled up to the next bucket with rows that mean nothing:

    row            0        1        2        3 (padding)
    token          a        b        c        0
    length        17        4       90        1
    block table   [7 2]    [5]      [1 9 ..]  [spare]     written and read by padding alone

What is recorded is plain attention, each sequence for itself. That sequences share a prefix is not
told to a step that is replayed (see `build_inputs`): reading it once takes further kernels, which
would have to be recorded too, or a step launched kernel by kernel, which costs more than it saves
unless prefixes are very long. The result is the same. Steps that are not replayed do share.
"""

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

from minillm_serve.core.batch import Batch
from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.inputs import Padding, StepInputs

#: Something to do that leaves its result in the same place each time.
Replay = Callable[[], Tensor]
#: Turns what is to be recorded into its replay.
Capture = Callable[[Replay], Replay]


def buckets_up_to(most: int) -> list[int]:
    """Batch sizes that are recorded: 1, 2, 4, 8, 16, then steps of 16 to 128, then of 64.

    | rows | filled up to | at most so many rows for nothing |
    | --- | --- | --- |
    | 1 .. 16 | the next power of two | 7 of 16 |
    | 17 .. 128 | the next multiple of 16 | 15 of 32 |
    | above | the next multiple of 64 | 63 of 192 |

    Args:
        most: the largest, and the last.
    """
    steps = [1, 2, 4, 8, *range(16, 129, 16), *range(192, most + 1, 64)]
    return [*(size for size in steps if size < most), most]


class GraphRunner:
    """Replays decode steps of up to `most_rows` sequences.

    Args:
        forward: gives the last layer's output [T, hidden] for a step's inputs, and looks at
            nothing on the host.
        most_rows: sequences of the largest step.
        table_width: blocks of the longest sequence (W).
        max_seq_len: tokens of the longest sequence.
        spare_block: a block of the KV cache that belongs to nobody.
        block_size: tokens a block (P).
        device: where it runs.
        capture: records; see `CudaCapture`.
    """

    def __init__(
        self,
        forward: Callable[[StepInputs], Tensor],
        *,
        most_rows: int,
        table_width: int,
        max_seq_len: int,
        spare_block: int,
        block_size: int,
        device: torch.device,
        capture: Capture,
    ) -> None:
        self.buckets = buckets_up_to(most_rows)
        self.spare_block = spare_block
        self._fixed = _fixed_inputs(
            most_rows, table_width, max_seq_len, spare_block * block_size, spare_block, device
        )
        # The largest first: the smaller ones then find room in the memory that it took.
        with torch.inference_mode():
            self._replays = {
                rows: capture(_bind(forward, _first_rows(self._fixed, rows)))
                for rows in reversed(self.buckets)
            }

    def padding_for(self, batch: Batch) -> Padding | None:
        """How to fill up a batch that can be replayed; None if it cannot."""
        scheduled = batch.scheduled
        if len(scheduled) > self.buckets[-1]:
            return None
        if not all(s.num_tokens == 1 and s.samples for s in scheduled):
            return None
        rows = self.buckets[bisect_left(self.buckets, len(scheduled))]
        return Padding(rows, self.spare_block)

    def run(self, inputs: StepInputs) -> Tensor:
        """[S, hidden] of the step's own rows. They stay until the next call."""
        rows = len(inputs.token_ids)
        fixed, given = _first_rows(self._fixed, rows), inputs.attention
        fixed.token_ids.copy_(inputs.token_ids)
        fixed.positions.copy_(inputs.positions)
        fixed.attention.seq_lens.copy_(given.seq_lens)
        fixed.attention.slot_mapping.copy_(given.slot_mapping)
        # What lies further right belongs to steps before, and is no part of any sequence's length.
        fixed.attention.block_tables[:, : given.block_tables.shape[1]].copy_(given.block_tables)
        return self._replays[rows]()[: inputs.num_scheduled]


class CudaCapture:
    """Records what a function launches. All recordings share one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Replay) -> Replay:
        """Runs a function once, so that nothing is left to be compiled, and then records it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            out = run()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay


def _bind(forward: Callable[[StepInputs], Tensor], inputs: StepInputs) -> Replay:
    return lambda: forward(inputs)


def _fixed_inputs(
    rows: int, width: int, max_seq_len: int, slot: int, block: int, device: torch.device
) -> StepInputs:
    """Inputs of nothing but padding rows, where all steps are copied to."""

    def filled(*shape: int, value: int = 0, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.full(shape, value, dtype=dtype, device=device)

    metadata = AttentionMetadata(
        query_start_loc=torch.arange(rows + 1, dtype=torch.int32, device=device),
        seq_lens=filled(rows, value=1, dtype=torch.int32),
        block_tables=filled(rows, width, value=block, dtype=torch.int32),
        slot_mapping=filled(rows, value=slot),
        max_query_len=1,
        max_seq_len=max_seq_len,
    )
    return StepInputs(
        token_ids=filled(rows),
        positions=filled(rows),
        attention=metadata,
        num_scheduled=rows,
        sampled=list(range(rows)),
        choices=[],
        first_choices=[],
        drafts=[],
        guided=[],
        prompts=[],
        logit_rows=torch.arange(rows, device=device),
        pending_rows=filled(0),
        pending_from=filled(0),
    )


def _first_rows(inputs: StepInputs, rows: int) -> StepInputs:
    """Views of the first rows."""
    metadata = inputs.attention
    return StepInputs(
        token_ids=inputs.token_ids[:rows],
        positions=inputs.positions[:rows],
        attention=AttentionMetadata(
            query_start_loc=metadata.query_start_loc[: rows + 1],
            seq_lens=metadata.seq_lens[:rows],
            block_tables=metadata.block_tables[:rows],
            slot_mapping=metadata.slot_mapping[:rows],
            max_query_len=1,
            max_seq_len=metadata.max_seq_len,
        ),
        num_scheduled=rows,
        sampled=inputs.sampled[:rows],
        choices=[],
        first_choices=[],
        drafts=[],
        guided=[],
        prompts=[],
        logit_rows=inputs.logit_rows[:rows],
        pending_rows=inputs.pending_rows,
        pending_from=inputs.pending_from,
    )
