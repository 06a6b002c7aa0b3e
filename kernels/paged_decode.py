"""Decode attention in Triton: one new row a sequence, keys and values in blocks all over a pool.

Decoding reads each key and value once and does little with it, so its time is that of the memory.
All that follows serves this: the query heads that share a KV head are rows of one tile, so that a
key is read once for all of them; a long context is split over several programs, so that the whole
GPU reads even if the batch is small (Flash-Decoding, Dao et al., 2023).
"""

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.attention_configs import (
    DecodeConfig,
    choose_num_splits,
    configure_decode,
)
from minillm_serve.kernels.attention_launch import (
    Cache,
    check_attention,
    check_per_sequence,
    check_single_rows,
    tile_constants,
)
from minillm_serve.kernels.attention_tiles import (
    LN2,
    LOG2E,
    block_ids,
    fold_tile,
    load_tile,
    only_row_of,
    soft_cap,
)
from minillm_serve.kernels.combine_splits import combine_splits
from minillm_serve.kernels.kv_codes import load_scales, to_compute
from minillm_serve.kernels.launch import check_positive, multiprocessors, target_of
from torch import Tensor


@triton.jit(do_not_specialize=["num_splits", "window", "stride_table", "stride_lse_split"])
def paged_decode_kernel(
    q_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, lens_ptr, starts_ptr, skip_ptr,
    o_ptr, lse_ptr, scale, softcap, window, num_splits,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_ks_block, stride_ks_head, stride_vs_block, stride_vs_head,
    stride_o_split, stride_o_row, stride_o_head,
    stride_table, stride_lse_split, stride_lse_row,
    D: tl.constexpr, D_PADDED: tl.constexpr, P: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, MIN_SPLIT: tl.constexpr,
    IS_SPLIT: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (h, s, i): KV head h, with all its query heads, over piece i of sequence s."""
    # All may be skipped of a sequence, and its last tile be looked at all the same.
    MAY_BE_EMPTY: tl.constexpr = skip_ptr is not None
    kv_head = tl.program_id(0).to(tl.int64)
    sequence = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    row = only_row_of(starts_ptr, sequence)
    if row < 0:
        return

    # This program's piece of what the row sees: whole tiles, so that a tile lies in few blocks.
    length = tl.load(lens_ptr + sequence)
    first = 0
    if skip_ptr is not None:
        first = tl.load(skip_ptr + sequence)
    if HAS_WINDOW:
        first = tl.maximum(length - window, first)
    origin = first // TILE * TILE
    piece = tl.cdiv(tl.cdiv(length - origin, TILE), num_splits) * TILE
    piece = tl.maximum(piece, MIN_SPLIT)
    begin = origin + split * piece
    end = tl.minimum(begin + piece, length)

    # The query heads of the group, padded to the 16 rows that a tensor core wants.
    g = tl.arange(0, ROWS)
    d = tl.arange(0, D_PADDED)
    heads = kv_head * GROUP + g
    inside = (g < GROUP)[:, None] & (d < D)[None, :]
    q_ptr += row * stride_q_row
    q = tl.load(q_ptr + heads[:, None] * stride_q_head + d[None, :], mask=inside, other=0.0)
    q = q.to(COMPUTE)

    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D_PADDED], tl.float32)
    k_ptr += kv_head * stride_k_head
    v_ptr += kv_head * stride_v_head
    if ks_ptr is not None:
        ks_ptr += kv_head * stride_ks_head
        vs_ptr += kv_head * stride_vs_head
    table_ptr += sequence * stride_table
    # Ids are fetched one tile ahead: an address that hangs on a load of the same iteration would
    # keep the compiler from fetching the next tiles while this one is worked on.
    ids = block_ids(table_ptr, begin, end, P, TILE)
    for start in range(begin, end, TILE):
        k = load_tile(k_ptr, ids, start, end, stride_k_block, stride_k_slot, D, D_PADDED, P, TILE)
        v = load_tile(v_ptr, ids, start, end, stride_v_block, stride_v_slot, D, D_PADDED, P, TILE)
        v_scales = None
        if ks_ptr is not None:
            k_scales = load_scales(ks_ptr, k_ptr, ids, start, end, stride_ks_block, P, TILE)
            v_scales = load_scales(vs_ptr, v_ptr, ids, start, end, stride_vs_block, P, TILE)
        ids = block_ids(table_ptr, start + TILE, end, P, TILE)

        k = to_compute(k, COMPUTE)
        scores = tl.dot(q, k.T, input_precision=PRECISION) * scale
        if ks_ptr is not None:
            scores *= k_scales[None, :]
        if HAS_SOFTCAP:
            scores = soft_cap(scores, softcap)
        positions = start + tl.arange(0, TILE)
        visible = (positions >= first) & (positions < end)
        # e^x = 2^(x log2 e), and powers of two are what the hardware has.
        scores = tl.where(visible[None, :], scores * LOG2E, float("-inf"))
        v = to_compute(v, COMPUTE)
        highest, total, acc = fold_tile(
            scores, v, v_scales, highest, total, acc, MAY_BE_EMPTY, PRECISION
        )

    # An empty piece has seen nothing: its highest score, and so its lse, is -inf, a weight of 0.
    total = tl.where(total == 0.0, 1.0, total)
    o = acc / total[:, None]
    lse = highest * LN2 + tl.log(total)
    place = row
    if IS_SPLIT:
        place = sequence
    o_ptr += split.to(tl.int64) * stride_o_split + place * stride_o_row
    lse_ptr += split.to(tl.int64) * stride_lse_split + place * stride_lse_row
    tl.store(o_ptr + heads[:, None] * stride_o_head + d[None, :], o, mask=inside)
    tl.store(lse_ptr + heads, lse, mask=g < GROUP)


def paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    max_seq_len: int,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    query_start_loc: Tensor | None = None,
    skip: Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    num_splits: int | None = None,
    out: Tensor | None = None,
    config: DecodeConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """Attends one row a sequence; reference: `attention_reference.attend_pages`.

    Args:
        q: [T, H, D] float32, float16 or bfloat16; any strides, as long as each head is dense.
        k_cache: [num_blocks, H_kv, P, D] like q, or codes in int8 or float8_e4m3fn; each slot
            dense. Unused slots may hold anything.
        v_cache: same.
        block_tables: [S, W] int32.
        seq_lens: [S] int32, tokens that each sequence sees; 0 gives a row of zeros.
        scale: multiplies the scores.
        max_seq_len: the most that seq_lens may hold. It decides only how far contexts are split, so
            a CUDA graph passes the model's longest.
        k_scale: [num_blocks, H_kv, P] float32, slots dense: what codes are multiplied by. None, if
            the caches hold none.
        v_scale: same.
        query_start_loc: [S+1] int32; sequence s has rows query_start_loc[s] .. [s+1]-1, and only
            those with exactly one row are attended: other rows of `out` stay as they are. None: row
            s is sequence s.
        skip: [S] int32, tokens at the beginning of each sequence that are not looked at; None: 0.
        window: most tokens that a row sees, its own included; None for all.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.
        num_splits: pieces that each context is cut into, if not to be chosen.
        out: [T, H, D] like q, written; made if None.
        config: instead of the chosen one.

    Returns:
        out, and the logarithm of each row's sum of e^score, [T, H] float32; -inf for an empty row.

    Raises:
        ValueError: a tensor cannot be read as it is; the message says which and what to do.
        RuntimeError: the kernel cannot run on this device.
    """
    out = check_attention(
        paged_decode_kernel, q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, out
    )
    cache = Cache.check(q, k_cache, v_cache, k_scale, v_scale)
    check_positive("window", window)
    check_positive("softcap", softcap)
    check_positive("num_splits", num_splits)
    check_single_rows(q, seq_lens, query_start_loc)
    if skip is not None:
        check_per_sequence("skip", skip, seq_lens)
    (rows, heads, dim), kv_heads = q.shape, k_cache.shape[1]
    sequences = len(seq_lens)
    config = config or configure_decode(dim, q.dtype, target_of(q.device), cache.is_coded)
    num_splits = num_splits or choose_num_splits(
        sequences * kv_heads, max_seq_len, multiprocessors(q.device), config.min_split
    )
    lse = torch.empty(rows, heads, dtype=torch.float32, device=q.device)
    part_o, part_lse = out[None], lse[None]
    if num_splits > 1:
        part_o = q.new_empty(num_splits, sequences, heads, dim, dtype=torch.float32)
        part_lse = lse.new_empty(num_splits, sequences, heads)
    launch_decode(
        q, cache, block_tables, seq_lens, query_start_loc, skip, part_o, part_lse,
        scale=scale, window=window, softcap=softcap, is_split=num_splits > 1, config=config,
    )  # fmt: skip
    if num_splits > 1:
        combine_splits(part_o, part_lse, query_start_loc, out, lse)
    return out, lse


def launch_decode(
    q: Tensor,
    cache: Cache,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor | None,
    skip: Tensor | None,
    part_o: Tensor,
    part_lse: Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    is_split: bool,
    config: DecodeConfig,
) -> None:
    """Starts the kernel on checked arguments; see `paged_decode` for what is not told here.

    Args:
        q: as all up to `skip`.
        cache: its caches and their scales.
        block_tables: see q.
        seq_lens: see q.
        query_start_loc: see q.
        skip: see q.
        part_o: [splits, S, H, D] float32 and
        part_lse: [splits, S, H] float32, written: attention of each piece by itself. Or, if the
            contexts are not split, [1, T, H, D] like q and [1, T, H] float32: the result.
        scale: multiplies the scores.
        window: most tokens that a row sees.
        softcap: of the scores.
        is_split: which of both.
        config: how the kernel is cut.
    """
    (heads, dim), (_, kv_heads, size, _) = q.shape[1:], cache.k.shape
    num_splits, group = len(part_o), heads // kv_heads
    paged_decode_kernel[(kv_heads, len(seq_lens), num_splits)](
        q, *cache.tensors, block_tables, seq_lens, query_start_loc, skip, part_o, part_lse,
        scale, softcap or 0.0, window or 0, num_splits,
        *q.stride()[:2], *cache.strides, *part_o.stride()[:3],
        block_tables.stride(0), *part_lse.stride()[:2],
        IS_SPLIT=is_split, HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None,
        **tile_constants(dim, size, group, q.dtype, target_of(q.device)),
        **config.constants(group), **config.compiler_options(),
    )  # fmt: skip
