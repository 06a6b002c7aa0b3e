"""Paged attention as one would explain it: token by token, head by head, block by block."""

from typing import Any

import torch
from torch import Tensor

from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    AttentionMetadata,
    Capabilities,
)
from minillm_serve.runtime.kv_cache import KVScales
from minillm_serve.runtime.kv_quantizer import QUANTIZERS, dequantize


class NaiveAttention(AttentionBackend):
    """The definition of the result, in loops. Every other backend is checked against it."""

    name = "naive"
    capabilities = Capabilities(
        devices=frozenset({"cpu", "cuda"}),
        dtypes=frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16}),
        window=True,
        kv_dtypes=frozenset(QUANTIZERS),
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
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty_like(q)
        k_scale, v_scale = scales or (None, None)
        wide = torch.promote_types(q.dtype, torch.float32)
        starts, lengths = metadata.query_start_loc.tolist(), metadata.seq_lens.tolist()
        for s, table in enumerate(metadata.block_tables.tolist()):
            first_position = lengths[s] - (starts[s + 1] - starts[s])
            for row in range(starts[s], starts[s + 1]):
                position = first_position + row - starts[s]
                begin = 0 if window is None else max(0, position - window + 1)
                k = _gather(k_cache, k_scale, table, begin, position + 1, wide)
                v = _gather(v_cache, v_scale, table, begin, position + 1, wide)
                out[row] = _attend_one(q[row].to(wide), k, v, scale)
        return out


def _gather(
    cache: Tensor,
    scales: Tensor | None,
    table: list[int],
    begin: int,
    end: int,
    dtype: torch.dtype,
) -> Tensor:
    """Positions begin .. end-1 of one sequence, block after block: [end - begin, H_kv, D]."""
    size = cache.shape[2]
    pieces = []
    for index in range(begin // size, -(-end // size)):
        first = index * size
        rows = slice(max(begin, first) - first, min(end, first + size) - first)
        piece = cache[table[index], :, rows].to(dtype)
        if scales is not None:
            piece = dequantize(piece, scales[table[index], :, rows], dtype)
        pieces.append(piece.transpose(0, 1))
    return torch.cat(pieces)


def _attend_one(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One token's query [H, D] over keys and values [L, H_kv, D] -> [H, D]."""
    group = q.shape[0] // k.shape[1]
    heads = []
    for head in range(q.shape[0]):
        weights = torch.softmax(k[:, head // group] @ q[head] * scale, dim=0)
        heads.append(weights @ v[:, head // group])
    return torch.stack(heads)
