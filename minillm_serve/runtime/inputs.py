"""Turns a batch of the scheduler into the tensors of a forward pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.attention.cascade import (
    CascadeCosts,
    SharedPrefix,
    find_shared_prefixes,
)
from minillm_serve.runtime.device import upload
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.structured.matchers import Guided

Scheduled = tuple[ScheduledSequence, ...]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Inputs of one forward pass; nothing in here changes when the sequences go on.

    Attributes:
        token_ids: [T] int64, the slices of all sequences, end to end; 0 where a token is pending.
        positions: [T] int64, where each token stands in its own sequence.
        attention: which rows are whose.
        num_scheduled: entries of the batch.
        sampled: indices into `Batch.scheduled` of those after which tokens are sampled.
        choices: what each sample hangs on: one for each of `sampled`, and behind it one more for
            each of its drafts.
        first_choices: where those of each of `sampled` begin, and at the end their number.
        drafts: for each of `sampled`, its drafts.
        guided: choices in which a grammar has a say.
        prompts: stretches of prompt whose log probabilities are wanted.
        logit_rows: [R] int64, the rows that need logits: of each choice, then those of the prompts.
            All other rows never see the output head.
        pending_rows: [Q] int64, rows whose token is pending.
        pending_from: [Q] int64, which sample of the step before each of them is.
        is_padded: rows were added, up to a size for which there is a CUDA graph.
    """

    token_ids: Tensor
    positions: Tensor
    attention: AttentionMetadata
    num_scheduled: int
    sampled: list[int]
    choices: list[Choice]
    first_choices: list[int]
    drafts: list[tuple[int, ...]]
    guided: list[Guided]
    prompts: list["PromptStretch"]
    logit_rows: Tensor
    pending_rows: Tensor
    pending_from: Tensor
    is_padded: bool = False

    @property
    def logprob_rows(self) -> list[int]:
        """Indices of the choices whose log probabilities are wanted."""
        return [row for row, c in enumerate(self.choices) if c.params.logprobs is not None]


class PromptStretch(NamedTuple):
    """Rows of one scheduled sequence that tell how likely the next token of its prompt was.

    Attributes:
        item: index into `Batch.scheduled`.
        row: the first of the rows.
        token_ids: the prompt's tokens that follow each of the rows.
        num_logprobs: how many of the most likely tokens to report beside each.
    """

    item: int
    row: int
    token_ids: list[int]
    num_logprobs: int


class Padding(NamedTuple):
    """Rows that fill a decode step up to a size for which there is a CUDA graph.

    Attributes:
        num_rows: rows there shall be in all.
        block: a block that belongs to nobody: the rows write there, and look at nothing else.
    """

    num_rows: int
    block: int


def build_inputs(
    batch: Batch,
    *,
    block_size: int,
    device: torch.device,
    before: Mapping[Sequence, int] | None = None,
    padding: Padding | None = None,
    cascade: CascadeCosts | None = None,
) -> StepInputs:
    """Lays a batch out, see `StepInputs`.

    Args:
        batch: what to run.
        block_size: tokens a block (P).
        device: where to.
        before: which sample of the step before is whose, if any token is pending.
        padding: if rows are to be added; every sequence must have one row.
        cascade: what decides whether prefixes that sequences share are told to the backend. Not
            with padding: a recorded step can only replay the plain kernels that it recorded.
    """
    scheduled = batch.scheduled
    ends = list(accumulate(s.num_tokens for s in scheduled))
    sampled = [index for index, s in enumerate(scheduled) if s.samples]
    choices = [choice for index in sampled for choice in Choice.all_of(scheduled[index])]
    drafts = [scheduled[index].draft_token_ids for index in sampled]
    first_choices = [0, *accumulate(len(guessed) + 1 for guessed in drafts)]
    prompts = _prompt_stretches(scheduled, ends)
    logit_rows = [
        row
        for index, guessed in zip(sampled, drafts, strict=True)
        for row in range(ends[index] - 1 - len(guessed), ends[index])
    ]
    for stretch in prompts:
        logit_rows += range(stretch.row, stretch.row + len(stretch.token_ids))
    picked = (logit_rows, *_pending(scheduled, ends, before or {}))
    rows = _rows(scheduled, block_size, padding)
    tensors = upload([*rows, *(np.array(x, np.int64) for x in picked)], device)
    ids, positions, slots, starts, lengths, tables, logits, pending, come_from = tensors
    return StepInputs(
        token_ids=ids,
        positions=positions,
        attention=AttentionMetadata(
            query_start_loc=starts,
            seq_lens=lengths,
            block_tables=tables,
            slot_mapping=slots,
            max_query_len=max(s.num_tokens for s in scheduled),
            max_seq_len=max(s.end for s in scheduled),
            shared_prefixes=() if padding else _shared_prefixes(rows, block_size, cascade),
        ),
        num_scheduled=len(scheduled),
        sampled=sampled,
        choices=choices,
        first_choices=first_choices,
        drafts=drafts,
        guided=Guided.all_of([scheduled[index] for index in sampled], first_choices),
        prompts=prompts,
        logit_rows=logits,
        pending_rows=pending,
        pending_from=come_from,
        is_padded=padding is not None,
    )


def _rows(scheduled: Scheduled, block_size: int, padding: Padding | None) -> list[np.ndarray]:
    """Token ids, positions, slots, query starts, lengths and block tables, padding included."""
    num_rows, spare = padding or (len(scheduled), 0)
    extra = num_rows - len(scheduled)
    tables = _block_tables(scheduled, spare, extra)
    positions = [np.arange(s.start, s.end) for s in scheduled]
    slots = [
        tables[row, where // block_size].astype(np.int64) * block_size + where % block_size
        for row, where in enumerate(positions)
    ]
    ids = list[int]()
    for s in scheduled:
        known = [*s.sequence.token_ids[s.start : s.known_end], *s.draft_token_ids]
        ids += known + [0] * (s.num_tokens - len(known))
    counts = [s.num_tokens for s in scheduled] + [1] * extra
    return [
        np.array(ids + [0] * extra, np.int64),
        np.concatenate([*positions, np.zeros(extra, np.int64)]),
        np.concatenate([*slots, np.full(extra, spare * block_size)]),
        np.array([0, *accumulate(counts)], np.int32),
        np.array([s.end for s in scheduled] + [1] * extra, np.int32),
        tables,
    ]


def _shared_prefixes(
    rows: list[np.ndarray], block_size: int, costs: CascadeCosts | None
) -> tuple[SharedPrefix, ...]:
    """What `_rows` laid out, searched for prefixes that are worth reading together."""
    if costs is None:
        return ()
    *_, starts, lengths, tables = rows
    return find_shared_prefixes(tables, starts, lengths, block_size=block_size, costs=costs)


def _pending(
    scheduled: Scheduled, ends: list[int], before: Mapping[Sequence, int]
) -> tuple[list[int], list[int]]:
    """Rows whose token is pending, and which sample of the step before each of them is."""
    rows = [i for i, s in enumerate(scheduled) if s.known_end > len(s.sequence.token_ids)]
    return [ends[i] - 1 for i in rows], [before[scheduled[i].sequence] for i in rows]


def _prompt_stretches(scheduled: Scheduled, ends: list[int]) -> list[PromptStretch]:
    stretches = [
        _prompt_stretch(index, ends[index] - s.num_tokens, s)
        for index, s in enumerate(scheduled)
        if s.sequence.lacks_prompt_logprobs
    ]
    return [stretch for stretch in stretches if stretch.token_ids]


def _prompt_stretch(index: int, first_row: int, item: ScheduledSequence) -> PromptStretch:
    sequence = item.sequence
    # The row of position p tells of the token at p + 1. What is known already (the sequence was
    # preempted and computes it again) is left out.
    begin = max(item.start + 1, len(sequence.prompt_logprobs))
    end = min(item.end + 1, sequence.num_prompt_tokens)
    return PromptStretch(
        index,
        first_row + begin - 1 - item.start,
        list(sequence.token_ids[begin:end]),
        sequence.params.prompt_logprobs or 0,
    )


def _block_tables(scheduled: Scheduled, spare: int, extra: int) -> np.ndarray:
    """[S, W] int32, padded with a block that is valid to load and never used."""
    width = max(len(s.sequence.block_table) for s in scheduled)
    tables = np.full((len(scheduled) + extra, width), spare, np.int32)
    for row, item in enumerate(scheduled):
        tables[row, : len(item.sequence.block_table)] = item.sequence.block_table
    return tables
