"""Rows of tokens, laid out for the passes of a small model."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.core.batch import ScheduledSequence
from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.device import upload


class Stretch(NamedTuple):
    """Tokens of one sequence that a pass computes.

    Attributes:
        token_ids: at least one.
        start: where the first of them stands.
        block_table: with blocks for all of them and all before.
    """

    token_ids: list[int]
    start: int
    block_table: list[int]


class Rows(NamedTuple):
    """What a pass computes, laid out as in `StepInputs`.

    Attributes:
        token_ids: [T] int64.
        positions: [T] int64.
        attention: which rows are whose.
    """

    token_ids: Tensor
    positions: Tensor
    attention: AttentionMetadata


def lay_out(stretches: list[Stretch], block_size: int, device: torch.device) -> Rows:
    """Rows of a pass over some tokens of several sequences."""
    host = _Layout.of(stretches, block_size)
    return host.rows(upload(host.arrays, device))


class _Layout(NamedTuple):
    """Rows on the host.

    Attributes:
        arrays: token ids, positions, slots [T] int64, query starts [S+1], lengths [S] and block
            tables [S, W] int32.
        max_query_len: the most rows of any sequence.
        max_seq_len: the longest length.
    """

    arrays: list[np.ndarray]
    max_query_len: int
    max_seq_len: int

    @classmethod
    def of(cls, stretches: list[Stretch], block_size: int) -> "_Layout":
        counts = np.array([len(s.token_ids) for s in stretches])
        begins = np.array([s.start for s in stretches])
        starts = np.concatenate(([0], counts.cumsum()))
        rows = np.arange(starts[-1])
        positions = rows + np.repeat(begins - starts[:-1], counts)
        tables = _tables([s.block_table for s in stretches])
        slots = _slots(tables, np.repeat(np.arange(len(stretches)), counts), positions, block_size)
        ids = np.array([token for s in stretches for token in s.token_ids], np.int64)
        lengths = begins + counts
        small = starts.astype(np.int32), lengths.astype(np.int32)
        arrays = [ids, positions, slots, *small, tables]
        return cls(arrays, int(counts.max()), int(lengths.max()))

    def rows(self, tensors: list[Tensor]) -> Rows:
        """The same on the device, where the arrays are tensors."""
        ids, positions, slots, starts, lengths, tables = tensors
        metadata = AttentionMetadata(
            query_start_loc=starts,
            seq_lens=lengths,
            block_tables=tables,
            slot_mapping=slots,
            max_query_len=self.max_query_len,
            max_seq_len=self.max_seq_len,
        )
        return Rows(ids, positions, metadata)


class Plan(NamedTuple):
    """Everything about the passes but the drafts themselves, sent to the device at once.

    Attributes:
        first: the first pass.
        last: [S] int64, each sequence's last row in it; None if that is its only one.
        positions: [N, S] int64, of each row of N later passes.
        slots: same, where they go.
        lengths: [N, S] int32, tokens of each sequence then.
        ends: [N, S], the same on the host.
        single: [S+1] int32, query starts where each sequence has one row.
    """

    first: Rows
    last: Tensor | None
    positions: Tensor
    slots: Tensor
    lengths: Tensor
    ends: np.ndarray
    single: Tensor

    @classmethod
    def of(
        cls,
        items: list[ScheduledSequence],
        starts: list[int],
        num_later: int,
        block_size: int,
        device: torch.device,
    ) -> "Plan":
        sequences = [item.sequence for item in items]
        host = _Layout.of(
            [
                Stretch(sequence.token_ids[start:], start, sequence.block_table)
                for sequence, start in zip(sequences, starts, strict=True)
            ],
            block_size,
        )
        *_, first_rows, lengths, tables = host.arrays
        positions = lengths + np.arange(num_later)[:, None]
        # A sequence that has dropped out has no blocks any more; what stands here is not used.
        within = np.minimum(positions, tables.shape[1] * block_size - 1)
        slots = _slots(tables, np.arange(len(items)), within, block_size)
        ends = (positions + 1).astype(np.int32)
        single = np.arange(len(items) + 1, dtype=np.int32)
        last = first_rows[1:].astype(np.int64) - 1
        later = [positions, slots, ends, single, last]
        tensors = upload([*host.arrays, *later], device)
        first = host.rows(tensors[: -len(later)])
        at, into, sizes, ones, last_rows = tensors[-len(later) :]
        alone = host.max_query_len == 1
        return cls(first, None if alone else last_rows, at, into, sizes, ends, ones)

    def later(self, j: int, rows: int, token_ids: Tensor) -> Rows:
        """Later pass j over the first so many sequences, which got these tokens [>= rows]."""
        metadata = AttentionMetadata(
            query_start_loc=self.single[: rows + 1],
            seq_lens=self.lengths[j, :rows],
            block_tables=self.first.attention.block_tables[:rows],
            slot_mapping=self.slots[j, :rows],
            max_query_len=1,
            max_seq_len=int(self.ends[j, :rows].max()),
        )
        return Rows(token_ids[:rows], self.positions[j, :rows], metadata)


def _tables(tables: list[list[int]]) -> np.ndarray:
    """[S, W] int32, padded with 0, a valid block."""
    padded = np.zeros((len(tables), max(map(len, tables))), np.int32)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    return padded


def _slots(
    tables: np.ndarray, sequences: np.ndarray, positions: np.ndarray, block_size: int
) -> np.ndarray:
    """Where positions [..., R] of sequences [R] go, int64."""
    blocks = tables[sequences, positions // block_size].astype(np.int64)
    return blocks * block_size + positions % block_size
