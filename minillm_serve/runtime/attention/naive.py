"""Paged attention as one would explain it: token by token, head by head, block by block."""

from typing import Any

import torch
from torch import Tensor

from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    AttentionMetadata,
    Capabilities,
)


class NaiveAttention(AttentionBackend):
    """The definition of the result, in loops. Every other backend is checked against it."""

    name = "naive"
    capabilities = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        dtypes=frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16}),
        window=True,
    )

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
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty_like(q)
        starts, lengths = metadata.query_start_loc.tolist(), metadata.seq_lens.tolist()
        for s, table in enumerate(metadata.block_tables.tolist()):
            first_position = lengths[s] - (starts[s + 1] - starts[s])
            for row in range(starts[s], starts[s + 1]):
                position = first_position + row - starts[s]
                begin = 0 if window is None else max(0, position - window + 1)
                k = _gather(k_cache, table, begin, position + 1)
                v = _gather(v_cache, table, begin, position + 1)
                out[row] = _attend_one(q[row], k, v, scale)
        return out


def _gather(cache: Tensor, table: list[int], begin: int, end: int) -> Tensor:
    """Positions begin .. end-1 of one sequence, block after block: [end - begin, H_kv, D]."""
    size = cache.shape[2]
    pieces = []
    for index in range(begin // size, -(-end // size)):
        first = index * size
        rows = slice(max(begin, first) - first, min(end, first + size) - first)
        pieces.append(cache[table[index], :, rows].transpose(0, 1))
    return torch.cat(pieces)


def _attend_one(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One token's query [H, D] over keys and values [L, H_kv, D] -> [H, D]."""
    group = q.shape[0] // k.shape[1]
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    heads = []
    for head in range(q.shape[0]):
        keys, values = k[:, head // group].to(wide), v[:, head // group].to(wide)
        weights = torch.softmax(keys @ q[head].to(wide) * scale, dim=0)
        heads.append(weights @ values)
    return torch.stack(heads).to(q.dtype)
