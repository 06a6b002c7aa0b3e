"""Attention written as one plain function, made a backend."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    AttentionMetadata,
    Capabilities,
)
from minillm_serve.runtime.kv_cache import KVScales

CAPABILITIES = Capabilities(
    devices=frozenset({"cpu", "cuda"}),
    dtypes=frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16}),
    window=False,
)


class PagedAttentionFunction(Protocol):
    """Causal attention of a step's rows over the blocks of their sequences."""

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        query_start_loc: Tensor,
        *,
        scale: float,
    ) -> Tensor:
        """Attends.

        Args:
            q: [T, H, D]; sequence s has rows query_start_loc[s] .. query_start_loc[s+1]-1, which
                are the LAST of its seq_lens[s] tokens.
            k_cache: [num_blocks, H_kv, P, D]; the step's own keys are in it already.
            v_cache: same shape.
            block_tables: [S, W] int32, padded with 0, a block that must not count.
            seq_lens: [S] int32, tokens of each sequence in the cache, this step's included.
            query_start_loc: [S+1] int32.
            scale: multiplies the scores.

        Returns:
            [T, H, D], in q's dtype. Query head h reads KV head h // (H // H_kv).
        """
        ...


class PagedDecodeFunction(Protocol):
    """The same where every sequence has a single row, its newest token."""

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        *,
        scale: float,
    ) -> Tensor:
        """Attends: q [S, H, D] -> [S, H, D]; all else as in `PagedAttentionFunction`."""
        ...


class FunctionAttention(AttentionBackend):
    """A `PagedAttentionFunction` as a backend."""

    name = "function"
    capabilities = CAPABILITIES

    def __init__(self, function: PagedAttentionFunction) -> None:
        self.function = function

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: Any,
        *,
        scale: float,
        window: int | None,
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        return self.function(
            q,
            k_cache,
            v_cache,
            metadata.block_tables,
            metadata.seq_lens,
            metadata.query_start_loc,
            scale=scale,
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Some sequences of a step, as if they were a step of their own.

    Attributes:
        rows: [T'] int64, their rows in the whole step.
        metadata: which of those rows belong to which of those sequences.
        plan: the backend's, if one attends to them.
    """

    rows: Tensor
    metadata: AttentionMetadata
    plan: Any = None


class DecodeFunctionAttention(AttentionBackend):
    """A `PagedDecodeFunction` as a backend: what is longer than one row goes to another backend.

    Args:
        function: attends to sequences that have a single row.
        rest: attends to all others.
    """

    name = "decode function"
    capabilities = CAPABILITIES

    def __init__(self, function: PagedDecodeFunction, rest: AttentionBackend) -> None:
        self.function, self.rest = function, rest

    def plan(self, metadata: AttentionMetadata) -> tuple[Share | None, Share | None]:
        """Tells single rows from longer slices; either may be missing."""
        starts = metadata.query_start_loc.tolist()
        counts = [end - begin for begin, end in pairwise(starts)]
        single = [s for s, count in enumerate(counts) if count == 1]
        longer = [s for s, count in enumerate(counts) if count > 1]
        decodes = _share(metadata, single, starts) if single else None
        if not longer:
            return decodes, None
        slices = _share(metadata, longer, starts)
        plan = self.rest.plan(slices.metadata)
        return decodes, Share(slices.rows, slices.metadata, plan)

    def write(
        self,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        scales: KVScales | None = None,
    ) -> None:
        """As the other backend does it."""
        self.rest.write(k, v, k_cache, v_cache, slot_mapping, scales)

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: tuple[Share | None, Share | None],
        *,
        scale: float,
        window: int | None,
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty_like(q)
        decodes, slices = plan
        if slices is not None:
            out[slices.rows] = self.rest.run(
                q[slices.rows],
                k_cache,
                v_cache,
                slices.metadata,
                slices.plan,
                scale=scale,
                window=window,
            )
        if decodes is not None:
            tables, lengths = decodes.metadata.block_tables, decodes.metadata.seq_lens
            attended = self.function(
                q[decodes.rows], k_cache, v_cache, tables, lengths, scale=scale
            )
            out[decodes.rows] = attended
        return out


def _share(metadata: AttentionMetadata, sequences: list[int], starts: list[int]) -> Share:
    device = metadata.seq_lens.device
    which = torch.tensor(sequences, device=device)
    spans = [range(starts[s], starts[s + 1]) for s in sequences]
    rows = torch.tensor([row for span in spans for row in span], device=device)
    ends = torch.tensor([0, *map(len, spans)]).cumsum(0)
    lengths = metadata.seq_lens[which]
    part = AttentionMetadata(
        query_start_loc=ends.int().to(device),
        seq_lens=lengths,
        block_tables=metadata.block_tables[which],
        slot_mapping=metadata.slot_mapping[rows],
        max_query_len=max(map(len, spans)),
        max_seq_len=int(lengths.max()),
    )
    return Share(rows, part)
