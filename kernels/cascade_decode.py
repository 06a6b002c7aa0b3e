"""Decode attention in Triton where sequences share the beginning of their contexts.

Paged decode would read a prefix of L tokens once for each of B sequences. Here the query heads of
all of them are rows of one tile, as the rows of a prompt are, and the prefix goes by once (cascade
inference: Ye et al., 2024; Hydragen: Juravsky et al., 2024, arXiv:2402.05099). What is each one's
own is left to paged decode, which begins behind the prefix:

    sequence 0   | piece 0 | piece 1 | own piece 0 |
    sequence 1   |  of the |  prefix | own piece 0 | own piece 1 |
    sequence 2                       | own piece 0 | own piece 1 |     (in no group)

A context that is cut into pieces is merged by `combine_splits` anyway, and so pieces of the prefix
are just more of them: empty ones, for a sequence in no group.
"""

import math

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.attention_configs import (
    CascadeConfig,
    DecodeConfig,
    choose_num_splits,
    configure_cascade,
    configure_decode,
)
from minillm_serve.kernels.attention_launch import (
    Cache,
    check_attention,
    check_per_sequence,
    check_single_rows,
    tile_constants,
)
from minillm_serve.kernels.attention_tiles import LN2
from minillm_serve.kernels.combine_splits import combine_splits
from minillm_serve.kernels.launch import (
    check_device,
    check_dtype,
    check_positive,
    check_shape,
    multiprocessors,
    target_of,
)
from minillm_serve.kernels.paged_decode import launch_decode
from minillm_serve.kernels.paged_prefill import attend
from torch import Tensor


@triton.jit(do_not_specialize=["num_splits", "stride_table", "stride_lse_split"])
def cascade_decode_kernel(
    q_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, members_ptr, lens_ptr, starts_ptr,
    o_ptr, lse_ptr, scale, softcap, num_splits,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_ks_block, stride_ks_head, stride_vs_block, stride_vs_head,
    stride_o_split, stride_o_sequence, stride_o_head,
    stride_table, stride_lse_split, stride_lse_sequence,
    D: tl.constexpr, D_PADDED: tl.constexpr, P: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, MIN_SPLIT: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (h, t, i): KV head h of the sequences of tile t, over piece i of their prefix."""
    MEMBERS: tl.constexpr = ROWS // GROUP
    kv_head = tl.program_id(0).to(tl.int64)
    members_ptr += tl.program_id(1) * MEMBERS
    split = tl.program_id(2)
    first = tl.load(members_ptr).to(tl.int64)
    if first < 0:
        return  # the list may have room left
    length = tl.load(lens_ptr + first)
    piece = tl.maximum(tl.cdiv(tl.cdiv(length, TILE), num_splits) * TILE, MIN_SPLIT)
    begin = split * piece
    end = tl.minimum(begin + piece, length)

    # Row r of the tile is query head r % GROUP of member r // GROUP.
    r = tl.arange(0, ROWS)
    d = tl.arange(0, D_PADDED)
    member = tl.load(members_ptr + r // GROUP, mask=r < MEMBERS * GROUP, other=-1).to(tl.int64)
    is_row = member >= 0
    row = member
    if starts_ptr is not None:
        row = tl.load(starts_ptr + member, mask=is_row, other=0).to(tl.int64)
    heads = kv_head * GROUP + r % GROUP
    inside = is_row[:, None] & (d < D)[None, :]
    q_ptrs = q_ptr + (row * stride_q_row + heads * stride_q_head)[:, None] + d[None, :]
    q = tl.load(q_ptrs, mask=inside, other=0.0).to(COMPUTE)

    # Each row sees the whole piece; nothing is masked but what a last tile has too much.
    last = tl.full([ROWS], 0, tl.int32) + (end - 1)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D_PADDED], tl.float32)
    if ks_ptr is not None:
        ks_ptr += kv_head * stride_ks_head
        vs_ptr += kv_head * stride_vs_head
    highest, total, acc = attend(
        q, k_ptr + kv_head * stride_k_head, v_ptr + kv_head * stride_v_head, ks_ptr, vs_ptr,
        table_ptr + first * stride_table, last, highest, total, acc,
        begin, end, scale, softcap, 0,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot,
        stride_ks_block, stride_vs_block,
        D, D_PADDED, P, TILE, True, False, HAS_SOFTCAP, COMPUTE, PRECISION,
    )  # fmt: skip

    # An empty piece has seen nothing: its highest score, and so its lse, is -inf, a weight of 0.
    total = tl.where(total == 0.0, 1.0, total)
    place = split.to(tl.int64) * stride_o_split + member * stride_o_sequence
    o_ptrs = o_ptr + (place + heads * stride_o_head)[:, None] + d[None, :]
    tl.store(o_ptrs, acc / total[:, None], mask=inside)
    place = split.to(tl.int64) * stride_lse_split + member * stride_lse_sequence
    tl.store(lse_ptr + place + heads, highest * LN2 + tl.log(total), mask=is_row)


def sequences_per_tile(head_dim: int, group: int, dtype: torch.dtype, device: torch.device) -> int:
    """How many sequences a tile holds, with `group` query heads to a KV head."""
    return configure_cascade(head_dim, dtype, target_of(device)).sequences(group)


def cascade_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    members: Tensor,
    shared_lens: Tensor,
    *,
    scale: float,
    max_seq_len: int,
    max_shared_len: int,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    query_start_loc: Tensor | None = None,
    softcap: float | None = None,
    num_splits: tuple[int, int] | None = None,
    out: Tensor | None = None,
    config: CascadeConfig | None = None,
    decode_config: DecodeConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """Attends one row a sequence, and reads what sequences share once for a tile of them.

    The result is that of `paged_decode`; reference: `attention_reference.attend_pages`.

    Args:
        q: as in `paged_decode`, like all that is not told here.
        k_cache: see q.
        v_cache: see q.
        block_tables: see q; members of a tile begin with the same blocks.
        seq_lens: see q.
        members: [N, `sequences_per_tile`] int32, the sequences of each tile, then -1; a tile may be
            all -1. A sequence is in one tile at most.
        shared_lens: [S] int32, tokens that a sequence reads with its tile, the same for all members
            of one; 0 for those in none. They need not fill their last block.
        scale: see q.
        max_seq_len: the most that seq_lens may hold.
        max_shared_len: the most that shared_lens may hold; both decide only how far contexts are
            split.
        k_scale: see q.
        v_scale: see q.
        query_start_loc: see q.
        softcap: see q.
        num_splits: pieces that prefixes and that what follows them are cut into, if not to be
            chosen.
        out: see q.
        config: of the kernel for prefixes, instead of the chosen one.
        decode_config: of the kernel for the rest, instead of the chosen one.

    Returns:
        As `paged_decode`.

    Raises:
        ValueError: a tensor cannot be read as it is; the message says which and what to do.
        RuntimeError: the kernel cannot run on this device.
    """
    out = check_attention(
        cascade_decode_kernel, q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, out
    )
    cache = Cache.check(q, k_cache, v_cache, k_scale, v_scale)
    check_positive("softcap", softcap)
    check_single_rows(q, seq_lens, query_start_loc)
    (rows, heads, dim), (_, kv_heads, size, _) = q.shape, k_cache.shape
    group, target, sequences = heads // kv_heads, target_of(q.device), len(seq_lens)
    config = config or configure_cascade(dim, q.dtype, target, cache.is_coded)
    decode_config = decode_config or configure_decode(dim, q.dtype, target, cache.is_coded)
    check_per_sequence("shared_lens", shared_lens, seq_lens)
    check_shape("members", members, None, config.sequences(group))
    check_dtype("members", members, torch.int32)
    check_device("members", members, q)
    sms = multiprocessors(q.device)
    shared, own = num_splits or (
        choose_num_splits(len(members) * kv_heads, max_shared_len, sms, config.min_split),
        choose_num_splits(sequences * kv_heads, max_seq_len, sms, decode_config.min_split),
    )
    part_o = q.new_empty(shared + own, sequences, heads, dim, dtype=torch.float32)
    part_lse = part_o.new_full((shared + own, sequences, heads), -math.inf)
    cascade_decode_kernel[(kv_heads, len(members), shared)](
        q, *cache.tensors, block_tables, members.contiguous(), shared_lens, query_start_loc,
        part_o, part_lse, scale, softcap or 0.0, shared,
        *q.stride()[:2], *cache.strides, *part_o.stride()[:3],
        block_tables.stride(0), *part_lse.stride()[:2], HAS_SOFTCAP=softcap is not None,
        **tile_constants(dim, size, group, q.dtype, target),
        **config.constants(group), **config.compiler_options(),
    )  # fmt: skip
    launch_decode(
        q, cache, block_tables, seq_lens, query_start_loc, shared_lens,
        part_o[shared:], part_lse[shared:],
        scale=scale, window=None, softcap=softcap, is_split=True, config=decode_config,
    )  # fmt: skip
    lse = part_lse.new_empty(rows, heads)
    combine_splits(part_o, part_lse, query_start_loc, out, lse)
    return out, lse
