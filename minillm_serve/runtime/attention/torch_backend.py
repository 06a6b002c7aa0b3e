"""Paged attention in stock torch: gather the blocks, then scaled_dot_product_attention."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from minillm_serve.runtime.attention.base import (
    AttentionBackend,
    AttentionMetadata,
    Capabilities,
)
from minillm_serve.runtime.attention.cascade import CascadeCosts, SharedPrefix, shared_tokens
from minillm_serve.runtime.kv_cache import KVScales
from minillm_serve.runtime.kv_quantizer import QUANTIZERS, dequantize

#: Each prefix is two products of its own, and each row is merged in several passes.
CASCADE = CascadeCosts(readers=1, row=16, step=512)


class Slice(NamedTuple):
    """More than one row of a sequence: rows begin .. end-1 of the step."""

    sequence: int
    begin: int
    end: int


class Shared(NamedTuple):
    """Decodes [n] int64 that read the same blocks [k] int64 first: indices into `TorchPlan`'s."""

    members: Tensor
    blocks: Tensor


@dataclass(frozen=True, slots=True)
class TorchCascade:
    """Shared prefixes, and what is left to each decode then.

    Attributes:
        shared: the prefixes.
        tables: [B, W] int32, block tables that begin behind them.
        lengths: [B] int32, tokens that these hold.
    """

    shared: list[Shared]
    tables: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True)
class TorchPlan:
    """Rows of a step, sorted by how they are attended.

    Attributes:
        decodes: [B] int64, sequences with a single row; they are attended together.
        decode_rows: [B] int64, the row of each.
        prefills: all longer slices, attended one by one.
        cascade: for layers that read shared prefixes once; None if there are none.
    """

    decodes: Tensor
    decode_rows: Tensor
    prefills: list[Slice]
    cascade: TorchCascade | None = None


class Pages(NamedTuple):
    """Keys or values of one layer.

    Attributes:
        cache: [num_blocks, H_kv, P, D].
        scales: [num_blocks, H_kv, P] float32, if the cache holds codes.
        dtype: in which they are wanted.
    """

    cache: Tensor
    scales: Tensor | None
    dtype: torch.dtype

    def gather(self, tables: Tensor, filled: Tensor | None = None) -> Tensor:
        """Copies the blocks of B sequences together: tables [B, W] -> [B, H_kv, W * P, D].

        Rows that are not `filled` [B, W * P] are leftovers of other sequences. Masking their scores
        is not enough, should they hold NaN (0 * NaN is NaN), so they become 0.
        """
        (_, kv_heads, size, dim), batch = self.cache.shape, tables.shape[0]
        heads = torch.arange(kv_heads, device=tables.device)
        ids = (tables[:, None, :].long() * kv_heads + heads[None, :, None]).flatten()
        rows = self.cache.view(-1, size, dim).index_select(0, ids)
        if self.scales is not None:
            rows = dequantize(rows, self.scales.view(-1, size)[ids], self.dtype)
        rows = rows.view(batch, kv_heads, -1, dim)
        if filled is not None:
            rows.masked_fill_(~filled[:, None, :, None], 0)
        return rows


class TorchAttention(AttentionBackend):
    """Runs wherever torch runs. Copies the whole context of every sequence at every step."""

    name = "torch"
    capabilities = Capabilities(
        devices=frozenset({"cpu", "cuda", "mps"}),
        dtypes=frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16}),
        window=True,
        kv_dtypes=frozenset(QUANTIZERS),
        cascade=CASCADE,
    )

    def plan(self, metadata: AttentionMetadata) -> TorchPlan:
        """Tells single rows, which can be batched, from longer slices."""
        starts = metadata.query_start_loc.tolist()
        single = [s for s in range(metadata.num_sequences) if starts[s + 1] - starts[s] == 1]
        longer = [s for s in range(metadata.num_sequences) if starts[s + 1] - starts[s] > 1]
        device = metadata.seq_lens.device
        return TorchPlan(
            decodes=torch.tensor(single, dtype=torch.int64, device=device),
            decode_rows=torch.tensor([starts[s] for s in single], dtype=torch.int64, device=device),
            prefills=[Slice(s, starts[s], starts[s + 1]) for s in longer],
            cascade=_plan_cascade(metadata, single) if metadata.shared_prefixes else None,
        )

    def run(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        metadata: AttentionMetadata,
        plan: TorchPlan,
        *,
        scale: float,
        window: int | None,
        scales: KVScales | None = None,
    ) -> Tensor:
        """See `AttentionBackend.run`."""
        out = torch.empty_like(q)
        k_scale, v_scale = scales or (None, None)
        k, v = Pages(k_cache, k_scale, q.dtype), Pages(v_cache, v_scale, q.dtype)
        for sequence, begin, end in plan.prefills:
            table = metadata.block_tables[sequence : sequence + 1]
            length = metadata.seq_lens[sequence : sequence + 1]
            rows = q[begin:end].unsqueeze(0)
            out[begin:end] = _attend(rows, k, v, table, length, scale, window)[0]
        if plan.cascade is not None and metadata.cascades(window):
            rows = q[plan.decode_rows]
            out[plan.decode_rows] = _attend_cascade(rows, k, v, plan.cascade, scale)
        elif len(plan.decodes):
            tables = metadata.block_tables[plan.decodes]
            lengths = metadata.seq_lens[plan.decodes]
            rows = q[plan.decode_rows].unsqueeze(1)
            attended = _attend(rows, k, v, tables, lengths, scale, window)
            out[plan.decode_rows] = attended.squeeze(1)
        return out


def _plan_cascade(metadata: AttentionMetadata, decodes: list[int]) -> TorchCascade:
    """Cuts the shared blocks off the decodes' tables."""
    prefixes, device = metadata.shared_prefixes, metadata.seq_lens.device
    tables, lengths = metadata.block_tables[decodes], metadata.seq_lens[decodes]
    tokens = torch.from_numpy(shared_tokens(prefixes, metadata.num_sequences)).to(device)[decodes]
    columns = torch.arange(tables.shape[1], device=device) + (
        tokens[:, None] // prefixes[0].block_size
    )
    place = {sequence: index for index, sequence in enumerate(decodes)}

    def shared(prefix: SharedPrefix) -> Shared:
        members = torch.tensor([place[s] for s in prefix.sequences], device=device)
        return Shared(members, tables[members[0], : prefix.num_blocks].long())

    return TorchCascade(
        shared=[shared(prefix) for prefix in prefixes],
        tables=tables.gather(1, columns.clamp(max=tables.shape[1] - 1)),
        lengths=lengths - tokens,
    )


def _attend_cascade(
    q: Tensor, keys: Pages, values: Pages, cascade: TorchCascade, scale: float
) -> Tensor:
    """One row each of B sequences, q [B, H, D] -> [B, H, D]: prefixes first, then what is left."""
    (batch, heads, dim), (_, kv_heads, size, _) = q.shape, keys.cache.shape
    grouped = q.view(batch, kv_heads, heads // kv_heads, dim)
    num_blocks = -(-int(cascade.lengths.max()) // size)
    tables = cascade.tables[:, :num_blocks]
    filled = torch.arange(num_blocks * size, device=q.device) < cascade.lengths[:, None]
    k, v = keys.gather(tables, filled), values.gather(tables, filled)
    out, lse = _attend_part(grouped, k, v, scale, filled[:, None, None])
    for members, blocks in cascade.shared:
        # All rows of the group, and their heads, become rows of one product for each KV head.
        rows = grouped[members].transpose(0, 1).reshape(kv_heads, -1, dim)
        k, v = keys.gather(blocks[None])[0], values.gather(blocks[None])[0]
        part = _attend_part(rows, k, v, scale)
        theirs, their_lse = (x.unflatten(1, (len(members), -1)).transpose(0, 1) for x in part)
        # Softmax over a union is the mean of the softmaxes, weighted by the sum of e^score of each.
        weight = torch.sigmoid(their_lse - lse[members])[..., None]
        out[members] = out[members].lerp(theirs, weight)
    return out.to(q.dtype).view(batch, heads, dim)


def _attend_part(
    q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention [..., Q, D] over some keys [..., L, D], and log of its sum of e^score [..., Q].

    In float32, or in float64 where q is that: a part is rounded only once it is merged.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).mT * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ v.to(wide), scores.logsumexp(-1)


def _attend(
    q: Tensor,
    keys: Pages,
    values: Pages,
    tables: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
) -> Tensor:
    """B sequences with Q rows each: q [B, Q, H, D] -> [B, Q, H, D]."""
    (batch, rows, heads, dim), (_, kv_heads, size, _) = q.shape, keys.cache.shape
    num_blocks = -(-int(lengths.max()) // size)
    tables = tables[:, :num_blocks]
    filled = torch.arange(num_blocks * size, device=q.device) < lengths[:, None]
    k, v = keys.gather(tables, filled), values.gather(tables, filled)
    # The query heads that share a KV head become rows of it, so that K and V are not repeated.
    grouped = q.reshape(batch, rows, kv_heads, heads // kv_heads, dim).permute(0, 2, 3, 1, 4)
    grouped = grouped.reshape(batch, kv_heads, -1, dim)
    mask = _mask(lengths, rows, k.shape[2], window)
    mask = mask.repeat(1, heads // kv_heads, 1).unsqueeze(1)
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scale)
    out = out.view(batch, kv_heads, heads // kv_heads, rows, dim).permute(0, 3, 1, 2, 4)
    return out.reshape(batch, rows, heads, dim)


def _mask(lengths: Tensor, rows: int, context: int, window: int | None) -> Tensor:
    """[B, Q, context], True where a row may look."""
    positions = torch.arange(context, device=lengths.device)
    row_positions = lengths[:, None] - rows + torch.arange(rows, device=lengths.device)
    visible = positions <= row_positions[..., None]
    if window is not None:
        visible &= positions > row_positions[..., None] - window
    return visible
