"""Prefill attention in Triton: many new rows a sequence (prompts, or chunks of them), over blocks.

The rows of all sequences lie end to end, without padding. A program takes a tile of consecutive
rows of one sequence, together with all query heads that share a KV head, and walks over the keys
that they see (FlashAttention-2, Dao, 2023). It is bound by arithmetic: both products of a tile run
on matrix units.
"""

import triton
import triton.language as tl
from minillm_serve.kernels.attention_configs import PrefillConfig, configure_prefill
from minillm_serve.kernels.attention_launch import Cache, check_attention, tile_constants
from minillm_serve.kernels.attention_tiles import (
    LOG2E,
    block_ids,
    fold_tile,
    load_tile,
    soft_cap,
)
from minillm_serve.kernels.kv_codes import load_scales, to_compute
from minillm_serve.kernels.launch import check_positive, target_of
from torch import Tensor


@triton.jit
def find_sequence(starts_ptr, num_sequences, piece, TOKENS: tl.constexpr):
    """Which sequence a program works on, and on which of its pieces of TOKENS rows.

    Sequence s is given the numbers from starts[s] // TOKENS + s on: at least as many as it has
    pieces, whatever the lengths, so that the host can choose the grid without reading them.
    """
    low, high = tl.full([], 0, tl.int32), num_sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts_ptr + middle) // TOKENS + middle <= piece:
            low = middle
        else:
            high = middle
    return low, piece - (tl.load(starts_ptr + low) // TOKENS + low)


@triton.jit
def attend(
    q, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, row_positions, highest, total, acc,
    begin, end, scale, softcap, window,
    stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_ks_block, stride_vs_block,
    D: tl.constexpr, D_PADDED: tl.constexpr, P: tl.constexpr, TILE: tl.constexpr,
    IS_MASKED: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Folds the keys at begin .. end-1 into the state of all rows; see `fold_tile`."""
    ids = block_ids(table_ptr, begin, end, P, TILE)
    for start in range(begin, end, TILE):
        k = load_tile(k_ptr, ids, start, end, stride_k_block, stride_k_slot, D, D_PADDED, P, TILE)
        v = load_tile(v_ptr, ids, start, end, stride_v_block, stride_v_slot, D, D_PADDED, P, TILE)
        v_scales = None
        if ks_ptr is not None:
            k_scales = load_scales(ks_ptr, k_ptr, ids, start, end, stride_ks_block, P, TILE)
            v_scales = load_scales(vs_ptr, v_ptr, ids, start, end, stride_vs_block, P, TILE)
        ids = block_ids(table_ptr, start + TILE, end, P, TILE)  # one tile ahead, as in decode

        k = to_compute(k, COMPUTE)
        scores = tl.dot(q, k.T, input_precision=PRECISION) * scale
        if ks_ptr is not None:
            scores *= k_scales[None, :]
        if HAS_SOFTCAP:
            scores = soft_cap(scores, softcap)
        scores *= LOG2E
        if IS_MASKED:
            positions = start + tl.arange(0, TILE)
            visible = positions[None, :] <= row_positions[:, None]
            if HAS_WINDOW:
                visible &= positions[None, :] > row_positions[:, None] - window
            scores = tl.where(visible, scores, float("-inf"))
        v = to_compute(v, COMPUTE)
        highest, total, acc = fold_tile(
            scores, v, v_scales, highest, total, acc, HAS_WINDOW, PRECISION
        )
    return highest, total, acc


@triton.jit(do_not_specialize=["num_sequences", "min_query_len", "window", "stride_table"])
def paged_prefill_kernel(
    q_ptr, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, lens_ptr, starts_ptr, o_ptr,
    scale, softcap, window, num_sequences, min_query_len,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_ks_block, stride_ks_head, stride_vs_block, stride_vs_head,
    stride_o_row, stride_o_head, stride_table,
    D: tl.constexpr, D_PADDED: tl.constexpr, P: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
    COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (h, i): KV head h, with all its query heads, over piece i of all sequences' rows."""
    TOKENS: tl.constexpr = ROWS // GROUP
    kv_head = tl.program_id(0).to(tl.int64)
    # Late rows see the most keys. They start first, so that no long program is left for the end.
    piece = tl.num_programs(1) - 1 - tl.program_id(1)
    sequence, piece = find_sequence(starts_ptr, num_sequences, piece, TOKENS)
    row_start = tl.load(starts_ptr + sequence)
    num_rows = tl.load(starts_ptr + sequence + 1) - row_start
    if (num_rows < min_query_len) | (piece * TOKENS >= num_rows):
        return
    length = tl.load(lens_ptr + sequence)

    # Row r of the tile is query head r % GROUP of token r // GROUP, counted from the piece's first.
    r = tl.arange(0, ROWS)
    d = tl.arange(0, D_PADDED)
    tokens = piece * TOKENS + r // GROUP
    first_position = length - num_rows + piece * TOKENS
    row_positions = first_position + r // GROUP
    rows = (row_start + tokens).to(tl.int64)
    heads = kv_head * GROUP + r % GROUP
    inside = ((tokens < num_rows) & (r < TOKENS * GROUP))[:, None] & (d < D)[None, :]
    q_ptrs = q_ptr + (rows * stride_q_row + heads * stride_q_head)[:, None] + d[None, :]
    q = tl.load(q_ptrs, mask=inside, other=0.0).to(COMPUTE)

    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D_PADDED], tl.float32)
    k_ptr += kv_head * stride_k_head
    v_ptr += kv_head * stride_v_head
    if ks_ptr is not None:
        ks_ptr += kv_head * stride_ks_head
        vs_ptr += kv_head * stride_vs_head
    table_ptr += sequence.to(tl.int64) * stride_table
    end = tl.minimum(first_position + TOKENS, length)
    if HAS_WINDOW:
        begin = tl.maximum(first_position - window + 1, 0) // TILE * TILE
    else:
        # Tiles that every row sees whole need no mask; only those on the diagonal do.
        begin = (first_position + 1) // TILE * TILE
        highest, total, acc = attend(
            q, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, row_positions, highest, total, acc,
            0, begin, scale, softcap, window,
            stride_k_block, stride_k_slot, stride_v_block, stride_v_slot,
            stride_ks_block, stride_vs_block,
            D, D_PADDED, P, TILE, False, HAS_WINDOW, HAS_SOFTCAP, COMPUTE, PRECISION,
        )  # fmt: skip
    highest, total, acc = attend(
        q, k_ptr, v_ptr, ks_ptr, vs_ptr, table_ptr, row_positions, highest, total, acc,
        begin, end, scale, softcap, window,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot,
        stride_ks_block, stride_vs_block,
        D, D_PADDED, P, TILE, True, HAS_WINDOW, HAS_SOFTCAP, COMPUTE, PRECISION,
    )  # fmt: skip

    o = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    o_ptrs = o_ptr + (rows * stride_o_row + heads * stride_o_head)[:, None] + d[None, :]
    tl.store(o_ptrs, o, mask=inside)


def paged_prefill(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    *,
    scale: float,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    min_query_len: int = 1,
    out: Tensor | None = None,
    config: PrefillConfig | None = None,
) -> Tensor:
    """Attends all rows of a step, causally; reference: `attention_reference.attend_pages`.

    Args:
        q: [T, H, D] float32, float16 or bfloat16; any strides, as long as each head is dense.
        k_cache: [num_blocks, H_kv, P, D] like q, or codes in int8 or float8_e4m3fn; each slot
            dense. The rows' own keys are in it already; unused slots may hold anything.
        v_cache: same.
        block_tables: [S, W] int32.
        seq_lens: [S] int32, tokens of each sequence in the cache.
        query_start_loc: [S+1] int32; sequence s has rows query_start_loc[s] .. [s+1]-1, which are
            the last of its seq_lens[s] tokens.
        scale: multiplies the scores.
        k_scale: [num_blocks, H_kv, P] float32, slots dense: what codes are multiplied by. None, if
            the caches hold none.
        v_scale: same.
        window: most tokens that a row sees, its own included; None for all.
        softcap: scores become softcap * tanh(scores / softcap); None for no cap.
        min_query_len: rows of sequences with fewer are left as they are, say 2 to leave single rows
            to `paged_decode`.
        out: [T, H, D] like q, written; made if None.
        config: instead of the chosen one.

    Returns:
        out.

    Raises:
        ValueError: a tensor cannot be read as it is; the message says which and what to do.
        RuntimeError: the kernel cannot run on this device.
    """
    out = check_attention(
        paged_prefill_kernel, q, k_cache, v_cache, block_tables, seq_lens, query_start_loc, out
    )
    cache = Cache.check(q, k_cache, v_cache, k_scale, v_scale)
    check_positive("window", window)
    check_positive("softcap", softcap)
    if not len(seq_lens):
        return out
    (rows, heads, dim), (_, kv_heads, size, _) = q.shape, k_cache.shape
    group, target = heads // kv_heads, target_of(q.device)
    config = config or configure_prefill(dim, q.dtype, target, cache.is_coded)
    constants = config.constants(group)
    pieces = rows // (constants["ROWS"] // group) + len(seq_lens)
    paged_prefill_kernel[(kv_heads, pieces)](
        q, *cache.tensors, block_tables, seq_lens, query_start_loc, out,
        scale, softcap or 0.0, window or 0, len(seq_lens), min_query_len,
        *q.stride()[:2], *cache.strides, *out.stride()[:2],
        block_tables.stride(0),
        HAS_WINDOW=window is not None, HAS_SOFTCAP=softcap is not None,
        **tile_constants(dim, size, group, q.dtype, target),
        **constants, **config.compiler_options(),
    )  # fmt: skip
    return out
