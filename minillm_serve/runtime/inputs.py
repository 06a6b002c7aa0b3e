"""Turns a batch of the scheduler into the tensors of a forward pass."""

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.runtime.attention.base import AttentionMetadata


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Inputs of one forward pass.

    Attributes:
        token_ids: [T] int64, the slices of all sequences, end to end.
        positions: [T] int64, where each token stands in its own sequence.
        attention: which rows are whose.
        sampled: indices into `Batch.scheduled` of those after which a token is sampled.
        prompts: stretches of prompt whose log probabilities are wanted.
        logit_rows: [R] int64, the rows that need logits: the last of each sampled sequence, then
            those of the prompts. All other rows never see the output head.
    """

    token_ids: Tensor
    positions: Tensor
    attention: AttentionMetadata
    sampled: list[int]
    prompts: list["PromptStretch"]
    logit_rows: Tensor


class PromptStretch(NamedTuple):
    """Rows of one scheduled sequence that tell how likely the next token of its prompt was.

    Attributes:
        item: index into `Batch.scheduled`.
        row: the first of the rows.
        token_ids: the prompt's tokens that follow each of the rows.
    """

    item: int
    row: int
    token_ids: list[int]


def build_inputs(batch: Batch, *, block_size: int, device: torch.device) -> StepInputs:
    """Lays a batch out without padding, see `StepInputs`."""
    scheduled = batch.scheduled
    tables = _block_tables(scheduled)
    positions = [np.arange(s.start, s.end) for s in scheduled]
    slots = [
        tables[row, where // block_size].astype(np.int64) * block_size + where % block_size
        for row, where in enumerate(positions)
    ]
    ends = list(accumulate(s.num_tokens for s in scheduled))
    sampled = [index for index, s in enumerate(scheduled) if s.samples]
    prompts = [
        stretch
        for index, s in enumerate(scheduled)
        if s.sequence.params.prompt_logprobs is not None
        and (stretch := _prompt_stretch(index, ends[index] - s.num_tokens, s)).token_ids
    ]
    logit_rows = [ends[index] - 1 for index in sampled]
    for stretch in prompts:
        logit_rows += range(stretch.row, stretch.row + len(stretch.token_ids))

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True)

    metadata = AttentionMetadata(
        query_start_loc=tensor(np.array([0, *ends], np.int32)),
        seq_lens=tensor(np.array([s.end for s in scheduled], np.int32)),
        block_tables=tensor(tables),
        slot_mapping=tensor(np.concatenate(slots)),
        max_query_len=max(s.num_tokens for s in scheduled),
        max_seq_len=max(s.end for s in scheduled),
    )
    ids = [token for s in scheduled for token in s.sequence.token_ids[s.start : s.end]]
    return StepInputs(
        token_ids=tensor(np.array(ids, np.int64)),
        positions=tensor(np.concatenate(positions)),
        attention=metadata,
        sampled=sampled,
        prompts=prompts,
        logit_rows=tensor(np.array(logit_rows, np.int64)),
    )


def _prompt_stretch(index: int, first_row: int, item: ScheduledSequence) -> PromptStretch:
    sequence = item.sequence
    # The row of position p tells of the token at p + 1. What is known already (the sequence was
    # preempted and computes it again) is left out.
    begin = max(item.start + 1, len(sequence.prompt_logprobs))
    end = min(item.end + 1, sequence.num_prompt_tokens)
    return PromptStretch(
        index, first_row + begin - 1 - item.start, list(sequence.token_ids[begin:end])
    )


def _block_tables(scheduled: tuple[ScheduledSequence, ...]) -> np.ndarray:
    """[S, W] int32, padded with block 0, which is valid to load and never used."""
    width = max(len(s.sequence.block_table) for s in scheduled)
    tables = np.zeros((len(scheduled), width), np.int32)
    for row, item in enumerate(scheduled):
        tables[row, : len(item.sequence.block_table)] = item.sequence.block_table
    return tables
