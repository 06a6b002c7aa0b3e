"""Decode attention and KV writes for CPUs, in Numba: blocks are read where they lie.

Stock torch has to copy every sequence's context together before it can attend. These loops follow
the block table instead, so that each key and value is read once and nothing is written but the
result. The torch reference is `minillm_serve.runtime.attention.naive`.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_kv_codes import PLAIN, make_unpack
from minillm_serve.kernels.cpu_math import FAST, NOGIL, bind, exp_nonpositive, prefetch
from numba import njit, prange

LINE_BYTES = 64
#: Rows of a block that are worked on together; blocks may be smaller or larger.
TILE = 16
#: Compile-time constants of the functions below, bound by `paged_decode`: D, H / H_kv, and what the
#: cache holds.
HEAD_DIM = GROUP = KIND = 0
unpack: Any = None


@cache
def paged_decode(head_dim: int, group: int, kind: int = PLAIN) -> Callable[..., None]:
    """Builds the decode kernel for heads of one shape.

    Args:
        head_dim: D.
        group: query heads that share a KV head, H / H_kv.
        kind: what the cache holds, see `cpu_kv_codes`.

    Returns:
        `kernel(q, k_cache, v_cache, k_scale, v_scale, block_tables, rows, sequences, lengths,
        begins, totals, tops, sums, scale, window, out)`, which attends single rows; the softmax is
        taken online (Milakov and Gimelshein, 2018), so that a row can go on from where
        `cpu_cascade` left it:

        q: [T, H, D] float32.
        k_cache, v_cache: [num_blocks, H_kv, P, D] float32, int8, or uint8 (e4m3); contiguous.
        k_scale, v_scale: [num_blocks, H_kv, P] float32, of the codes in 8 bits; else anything.
        block_tables: [S, W] int32.
        rows: [B] int64, rows of q and out; in an order that splits the work evenly.
        sequences: [B] int64, each row's sequence.
        lengths: [B] int64, tokens that each row sees, its own included.
        begins: [B] int64, tokens that each row has seen already; 0 is to begin anew.
        totals: [S, H, D] float32, what came of these: values, weighted and summed up;
        tops: [S, H] float32, the highest score;
        sums: [S, H] float32, the sum of the weights. Only read of sequences that have begun.
        scale: float32, multiplies the scores.
        window: int64, most tokens a row may see.
        out: [T, H, D] float32, contiguous; the given rows are written.
    """
    shape = {"HEAD_DIM": head_dim, "GROUP": group, "KIND": kind}
    # Apart from the loop over blocks and from each other: inlined there, they come out slower.
    helpers = {
        function.__name__: njit(fastmath=FAST)(bind(function, **shape))
        for function in (_score, _weigh, _add_values)
    }
    kernel = bind(_paged_decode, **shape, **helpers, unpack=make_unpack(kind, head_dim))
    compiled: Callable[..., None] = njit(parallel=True, fastmath=FAST, cache=True, nogil=NOGIL)(
        kernel
    )
    return compiled


def _paged_decode(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, rows, sequences, lengths, begins,
    totals, tops, sums, scale, window, out,
):  # fmt: skip
    kv_heads, size = k_cache.shape[1], k_cache.shape[2]
    width = 1 if KIND else 4
    tile_bytes = min(TILE, size) * HEAD_DIM * width
    k_address, v_address = k_cache.ctypes.data, v_cache.ctypes.data
    # An item is one row and one KV head, with all query heads that share it.
    for item in prange(len(rows) * kv_heads):
        index, head = item // kv_heads, item % kv_heads
        row, length, sequence = rows[index], lengths[index], sequences[index]
        table = block_tables[sequence]
        group = slice(head * GROUP, (head + 1) * GROUP)
        queries = q[row, group].copy()
        total = np.zeros((GROUP, HEAD_DIM), np.float32)
        highest = np.full(GROUP, -np.inf, np.float32)
        weight_sum = np.zeros(GROUP, np.float32)
        scores = np.zeros((GROUP, TILE), np.float32)
        k_numbers = np.empty((TILE if KIND else 0, HEAD_DIM), np.float32)
        v_numbers = np.empty((TILE if KIND else 0, HEAD_DIM), np.float32)
        if begins[index] > 0:
            total[:] = totals[sequence, group]
            highest[:] = tops[sequence, group]
            weight_sum[:] = sums[sequence, group]
        first = max(begins[index], length - window)
        num_blocks = (length + size - 1) // size
        for b in range(first // size, num_blocks):
            # The next block lies anywhere in memory, where no processor would guess it.
            ahead = np.int64(table[min(b + 1, num_blocks - 1)])
            offset = (ahead * kv_heads + head) * size * HEAD_DIM * width
            for line in range(0, tile_bytes, LINE_BYTES):
                prefetch(k_address + offset + line)
                prefetch(v_address + offset + line)
            k_page, v_page = k_cache[table[b], head], v_cache[table[b], head]
            # Without codes there are no scales, and nobody looks at these.
            place = table[b] if KIND else 0
            k_scales = k_scale[place, head if KIND else 0]
            v_scales = v_scale[place, head if KIND else 0]
            # Positions begin .. end-1 of this block are seen, a tile at a time.
            begin, end = max(0, first - b * size), min(size, length - b * size)
            for start in range(begin, end, TILE):
                count = min(TILE, end - start)
                keys = unpack(k_page, k_scales, start, count, k_numbers)
                _score(queries, keys, count, scale, scores)
                _weigh(scores, count, highest, weight_sum, total)
                values = unpack(v_page, v_scales, start, count, v_numbers)
                _add_values(scores, values, count, total)
        for g in range(GROUP):
            for d in range(HEAD_DIM):
                out[row, head * GROUP + g, d] = total[g, d] / weight_sum[g]


def _score(queries, keys, count, scale, scores):
    """scores[g, j] = queries[g] . keys[j] * scale, for j < count; four keys a pass over a query."""
    fours = count // 4 * 4
    for g in range(GROUP):
        for j in range(0, fours, 4):
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for d in range(HEAD_DIM):
                x = queries[g, d]
                s0 += x * keys[j, d]
                s1 += x * keys[j + 1, d]
                s2 += x * keys[j + 2, d]
                s3 += x * keys[j + 3, d]
            scores[g, j] = s0 * scale
            scores[g, j + 1] = s1 * scale
            scores[g, j + 2] = s2 * scale
            scores[g, j + 3] = s3 * scale
        for j in range(fours, count):
            s0 = np.float32(0)
            for d in range(HEAD_DIM):
                s0 += queries[g, d] * keys[j, d]
            scores[g, j] = s0 * scale


def _weigh(scores, count, highest, weight_sum, total):
    """Turns scores into weights e^(score - highest), and shrinks what was summed up before."""
    for g in range(GROUP):
        top = highest[g]
        for j in range(count):
            top = max(top, scores[g, j])
        shrink = np.float32(math.exp(highest[g] - top))
        highest[g] = top
        # The whole row, whatever its tail holds: a loop of known length vectorises.
        for j in range(TILE):
            scores[g, j] = exp_nonpositive(scores[g, j] - top)
        added = np.float32(0)
        for j in range(count):
            added += scores[g, j]
        weight_sum[g] = weight_sum[g] * shrink + added
        for d in range(HEAD_DIM):
            total[g, d] *= shrink


def _add_values(scores, values, count, total):
    """total[g] += sum over j < count of scores[g, j] values[j]; four values a pass."""
    fours = count // 4 * 4
    for g in range(GROUP):
        for j in range(0, fours, 4):
            w0, w1, w2, w3 = scores[g, j], scores[g, j + 1], scores[g, j + 2], scores[g, j + 3]
            for d in range(HEAD_DIM):
                total[g, d] += (
                    w0 * values[j, d]
                    + w1 * values[j + 1, d]
                    + w2 * values[j + 2, d]
                    + w3 * values[j + 3, d]
                )
        for j in range(fours, count):
            w0 = scores[g, j]
            for d in range(HEAD_DIM):
                total[g, d] += w0 * values[j, d]


@njit(cache=True)
def kv_write(
    k: np.ndarray,
    v: np.ndarray,
    slot_mapping: np.ndarray,
    k_cache: np.ndarray,
    v_cache: np.ndarray,
) -> None:
    """Stores new keys and values.

    Args:
        k: [T, H_kv, D].
        v: [T, H_kv, D].
        slot_mapping: [T] int64.
        k_cache: [num_blocks, H_kv, P, D], written.
        v_cache: same.
    """
    size = k_cache.shape[2]
    for row in range(len(slot_mapping)):
        block, offset = slot_mapping[row] // size, slot_mapping[row] % size
        k_cache[block, :, offset] = k[row]
        v_cache[block, :, offset] = v[row]
