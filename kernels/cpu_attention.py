"""Decode attention and KV writes for CPUs, in Numba: blocks are read where they lie.

Stock torch has to copy every sequence's context together before it can attend. These loops follow
the block table instead, so that each key and value is read once and nothing is written but the
result. The torch reference is `minillm_serve.runtime.attention.naive`.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from minillm_serve.kernels.cpu_math import FAST, exp_nonpositive, prefetch
from numba import njit, prange

LINE_BYTES = 64


@njit(fastmath=FAST, forceinline=True)
def _scores(
    queries: np.ndarray, keys: np.ndarray, end: int, scale: float, group: int, dim: int,
    scores: np.ndarray,
) -> None:  # fmt: skip
    """scores[g, j] = queries[g] . keys[j] * scale, for j < end; four keys a pass over a query."""
    fours = end // 4 * 4
    for g in range(group):
        for j in range(0, fours, 4):
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for d in range(dim):
                x = queries[g, d]
                s0 += x * keys[j, d]
                s1 += x * keys[j + 1, d]
                s2 += x * keys[j + 2, d]
                s3 += x * keys[j + 3, d]
            scores[g, j] = s0 * scale
            scores[g, j + 1] = s1 * scale
            scores[g, j + 2] = s2 * scale
            scores[g, j + 3] = s3 * scale
        for j in range(fours, end):
            s0 = np.float32(0)
            for d in range(dim):
                s0 += queries[g, d] * keys[j, d]
            scores[g, j] = s0 * scale


@njit(fastmath=FAST, forceinline=True)
def _weigh(
    scores: np.ndarray, begin: int, end: int, group: int, size: int, dim: int,
    highest: np.ndarray, weight_sum: np.ndarray, total: np.ndarray,
) -> None:  # fmt: skip
    """Turns scores into weights e^(score - highest), and shrinks what was summed up before."""
    for g in range(group):
        top = highest[g]
        for j in range(begin, end):
            top = max(top, scores[g, j])
        shrink = np.float32(math.exp(highest[g] - top))
        highest[g] = top
        # The whole row, whatever its tail holds: a loop of known length vectorises.
        for j in range(size):
            scores[g, j] = exp_nonpositive(scores[g, j] - top)
        added = np.float32(0)
        for j in range(begin, end):
            added += scores[g, j]
        weight_sum[g] = weight_sum[g] * shrink + added
        for d in range(dim):
            total[g, d] *= shrink


@njit(fastmath=FAST, forceinline=True)
def _add_values(
    scores: np.ndarray, values: np.ndarray, begin: int, end: int, group: int, dim: int,
    total: np.ndarray,
) -> None:  # fmt: skip
    """total[g] += sum over begin <= j < end of scores[g, j] values[j]; four values a pass."""
    fours = begin + (end - begin) // 4 * 4
    for g in range(group):
        for j in range(begin, fours, 4):
            w0, w1, w2, w3 = scores[g, j], scores[g, j + 1], scores[g, j + 2], scores[g, j + 3]
            for d in range(dim):
                total[g, d] += (
                    w0 * values[j, d]
                    + w1 * values[j + 1, d]
                    + w2 * values[j + 2, d]
                    + w3 * values[j + 3, d]
                )
        for j in range(fours, end):
            w0 = scores[g, j]
            for d in range(dim):
                total[g, d] += w0 * values[j, d]


@cache
def paged_decode(head_dim: int, block_size: int, group: int) -> Callable[..., None]:
    """Builds the decode kernel of one shape: loops of known length are twice as fast.

    Args:
        head_dim: D.
        block_size: P.
        group: query heads that share a KV head, H / H_kv.

    Returns:
        `kernel(q, k_cache, v_cache, block_tables, rows, sequences, lengths, scale, window, out)`,
        which attends single rows; the softmax is taken online (Milakov and Gimelshein, 2018):

        q: [T, H, D] float32, C-contiguous in its last dimension.
        k_cache, v_cache: [num_blocks, H_kv, P, D] float32, contiguous.
        block_tables: [S, W] int32.
        rows: [B] int64, rows of q and out; in an order that splits the work evenly.
        sequences: [B] int64, each row's sequence.
        lengths: [B] int64, tokens that each row sees, its own included.
        scale: float32, multiplies the scores.
        window: int64, most tokens a row may see.
        out: [T, H, D] float32, contiguous; the given rows are written.
    """
    page_bytes = block_size * head_dim * 4

    @njit(parallel=True, fastmath=FAST, cache=True)
    def kernel(q, k_cache, v_cache, block_tables, rows, sequences, lengths, scale, window, out):
        kv_heads = k_cache.shape[1]
        k_address, v_address = k_cache.ctypes.data, v_cache.ctypes.data
        # An item is one row and one KV head, with all query heads that share it.
        for item in prange(len(rows) * kv_heads):
            index, head = item // kv_heads, item % kv_heads
            row, length = rows[index], lengths[index]
            table = block_tables[sequences[index]]
            queries = q[row, head * group : (head + 1) * group].copy()
            total = np.zeros((group, head_dim), np.float32)
            highest = np.full(group, -np.inf, np.float32)
            weight_sum = np.zeros(group, np.float32)
            scores = np.zeros((group, block_size), np.float32)
            first = max(0, length - window)
            num_blocks = (length + block_size - 1) // block_size
            for b in range(first // block_size, num_blocks):
                # The next block lies anywhere in memory, where no processor would guess it.
                ahead = np.int64(table[min(b + 1, num_blocks - 1)])
                offset = (ahead * kv_heads + head) * page_bytes
                for line in range(0, page_bytes, LINE_BYTES):
                    prefetch(k_address + offset + line)
                    prefetch(v_address + offset + line)
                begin, end = (
                    max(0, first - b * block_size),
                    min(block_size, length - b * block_size),
                )
                keys, values = k_cache[table[b], head], v_cache[table[b], head]
                _scores(queries, keys, end, scale, group, head_dim, scores)
                _weigh(scores, begin, end, group, block_size, head_dim, highest, weight_sum, total)
                _add_values(scores, values, begin, end, group, head_dim, total)
            for g in range(group):
                for d in range(head_dim):
                    out[row, head * group + g, d] = total[g, d] / weight_sum[g]

    return kernel


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
