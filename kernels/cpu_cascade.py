"""The shared part of decode attention for CPUs, in Numba: a prefix is read once for many sequences.

Rows of different sequences that begin with the same blocks stand side by side in the lanes of
vectors, as the rows of one prompt do in `cpu_prefill`, whose matrix product this is. The softmax
over the prefix is left unfinished: `cpu_attention.paged_decode` goes on from there with what is
each sequence's own, and so merges without a step of its own. The torch reference is
`minillm_serve.runtime.attention.naive`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_kv_codes import PLAIN
from minillm_serve.kernels.cpu_prefill import CHUNK, LOWEST, QUERIES, bind_tiles
from numba import prange

#: Bound by `bind_tiles`; see there.
HEAD_DIM = GROUP = SHARE = SCRATCH = 1
score: Any = None
weigh: Any = None
add: Any = None


@cache
def shared_prefix(head_dim: int, group: int, kind: int = PLAIN) -> Callable[..., None]:
    """Builds the kernel for heads of one shape.

    Args:
        head_dim: D.
        group: query heads that share a KV head, H / H_kv.
        kind: what the cache holds, see `cpu_kv_codes`.

    Returns:
        `kernel(q, k_cache, v_cache, k_scale, v_scale, block_tables, members, rows, lengths, scale,
        totals, tops, sums)`, which attends N tiles of up to `rows_per_tile(group)` sequences:

        q: [T, H, D] float32.
        k_cache, v_cache: [num_blocks, H_kv, P, D] float32, int8, or uint8 (e4m3); contiguous.
        k_scale, v_scale: [num_blocks, H_kv, P] float32, of the codes in 8 bits; else anything.
        block_tables: [S, W] int32.
        members: [N, rows_per_tile(group)] int32, each tile's sequences, then -1; the first one's
            table names the blocks.
        rows: [S] int64, each sequence's row in q.
        lengths: [S] int32, tokens of the prefix, the same for all members of a tile.
        scale: float32, multiplies the scores.
        totals: [S, H, D] float32, contiguous, written for the members: sums of the values, weighted
            by e^(score - highest score);
        tops: [S, H] float32, written: the highest scores;
        sums: [S, H] float32, written: the sums of the weights.
    """
    return bind_tiles(_shared_prefix, head_dim, group, kind, {"_load": _load, "_store": _store})


def _shared_prefix(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, members, rows, lengths, scale,
    totals, tops, sums,
):  # fmt: skip
    kv_heads = k_cache.shape[1]
    pieces = (GROUP + SHARE - 1) // SHARE
    # Heads go first: a thread then reads one head's prefix for tile after tile, out of its cache.
    for item in prange(kv_heads * len(members) * pieces):
        head, rest = item // (len(members) * pieces), item % (len(members) * pieces)
        tile, piece = rest // pieces, rest % pieces
        table, length = block_tables[members[tile, 0]], lengths[members[tile, 0]]
        first_head = head * GROUP + piece * SHARE
        heads = min(SHARE, GROUP - piece * SHARE)
        queries = np.zeros((HEAD_DIM, QUERIES), np.float32)
        _load(q, rows, members[tile], first_head, heads, scale, queries)
        total = np.zeros((HEAD_DIM, QUERIES), np.float32)
        highest = np.full(QUERIES, LOWEST, np.float32)
        weight_sum = np.zeros(QUERIES, np.float32)
        weights = np.zeros((CHUNK, QUERIES), np.float32)
        numbers = np.empty((SCRATCH, HEAD_DIM), np.float32)
        for start in range(0, length, CHUNK):
            stop = min(start + CHUNK, length)
            score(k_cache, k_scale, table, start, stop, head, queries, weights, numbers)
            weigh(weights, stop - start, highest, weight_sum, total)
            add(v_cache, v_scale, table, start, stop, head, weights, total, numbers)
        _store(total, highest, weight_sum, members[tile], first_head, heads, totals, tops, sums)


def _load(q, rows, members, first_head, heads, scale, queries):
    """Puts (sequence, head) pairs side by side in lanes; the rest stays zero."""
    for m in range(len(members)):
        if members[m] < 0:
            break
        row = rows[members[m]]
        for g in range(heads):
            for d in range(HEAD_DIM):
                queries[d, m * SHARE + g] = q[row, first_head + g, d] * scale


def _store(total, highest, weight_sum, members, first_head, heads, totals, tops, sums):
    for m in range(len(members)):
        sequence = members[m]
        if sequence < 0:
            break
        for g in range(heads):
            lane, head = m * SHARE + g, first_head + g
            tops[sequence, head] = highest[lane]
            sums[sequence, head] = weight_sum[lane]
            for d in range(HEAD_DIM):
                totals[sequence, head, d] = total[d, lane]
