"""Decode attention and KV writes for CPUs, in Numba: blocks are read where they lie.

Stock torch has to copy every sequence's context together before it can attend. These loops follow
the block table instead, so that each key and value is read once and nothing is written but the
result. The torch reference is `minillm_serve.runtime.attention.naive`.
"""

import math

import numpy as np
from numba import njit, prange

# Sums may be reordered, so that they vectorise. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(parallel=True, fastmath=FAST, cache=True)
def paged_decode(
    q: np.ndarray,
    k_cache: np.ndarray,
    v_cache: np.ndarray,
    block_tables: np.ndarray,
    rows: np.ndarray,
    sequences: np.ndarray,
    lengths: np.ndarray,
    scale: float,
    window: int,
    out: np.ndarray,
) -> None:
    """Attends single rows; the softmax is taken online (Milakov and Gimelshein, 2018).

    A work item is one row and one KV head, with all query heads that share it, so that a key is
    loaded once for the whole group.

    Args:
        q: [T, H, D] float32.
        k_cache: [num_blocks, H_kv, P, D] float32.
        v_cache: same.
        block_tables: [S, W] int32.
        rows: [B] int64, rows of q and out; in an order that splits the work evenly.
        sequences: [B] int64, each row's sequence.
        lengths: [B] int64, tokens that each row sees, its own included.
        scale: multiplies the scores.
        window: most tokens a row may see.
        out: [T, H, D] float32; the given rows are written.
    """
    kv_heads, size, dim = k_cache.shape[1], k_cache.shape[2], k_cache.shape[3]
    group = q.shape[1] // kv_heads
    for item in prange(len(rows) * kv_heads):
        index, kv_head = item // kv_heads, item % kv_heads
        row, length = rows[index], lengths[index]
        table = block_tables[sequences[index]]
        queries = q[row, kv_head * group : (kv_head + 1) * group]
        total = np.zeros((group, dim), np.float32)
        highest = np.full(group, -np.inf, np.float32)
        weight_sum = np.zeros(group, np.float32)
        scores = np.empty(size, np.float32)
        first = max(0, length - window)
        for block in range(first // size, (length + size - 1) // size):
            begin = max(0, first - block * size)
            end = min(size, length - block * size)
            keys, values = k_cache[table[block], kv_head], v_cache[table[block], kv_head]
            for g in range(group):
                top = highest[g]
                for j in range(begin, end):
                    score = np.float32(0)
                    for d in range(dim):
                        score += queries[g, d] * keys[j, d]
                    scores[j] = score * scale
                    top = max(top, scores[j])
                shrink = math.exp(highest[g] - top)
                highest[g] = top
                weight_sum[g] *= shrink
                for d in range(dim):
                    total[g, d] *= shrink
                for j in range(begin, end):
                    weight = np.float32(math.exp(scores[j] - top))
                    weight_sum[g] += weight
                    for d in range(dim):
                        total[g, d] += weight * values[j, d]
        for g in range(group):
            for d in range(dim):
                out[row, kv_head * group + g, d] = total[g, d] / weight_sum[g]


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
