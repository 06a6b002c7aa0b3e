"""Prefill attention for CPUs, in Numba: many rows of a sequence, over blocks where they lie.

A tile of queries stands in the lanes of vectors, transposed, and keys and values come past one
number at a time: `scores = K q` and `total += V^T weights` are then the same small matrix product,
with a block of the cache on its left as it lies in memory. Nothing is copied together first, and
the softmax (online: Milakov and Gimelshein, 2018) never sums across lanes. The torch reference is
`minillm_serve.runtime.attention.naive`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_kv_codes import PLAIN, make_unpack
from minillm_serve.kernels.cpu_math import FAST, NOGIL, bind, exp_nonpositive
from minillm_serve.kernels.cpu_vectors import (
    FLOAT,
    FLOATS,
    LANES,
    WIDE_REGISTERS,
    Loop,
    Vectors,
)
from numba import njit, prange, types
from numba.extending import intrinsic

#: Queries of a tile: (row, head) pairs that read the same KV head.
QUERIES = LANES * (2 if WIDE_REGISTERS else 1)
#: Rows of a product whose sums stay in registers.
SUMS = 8 if WIDE_REGISTERS else 4
#: Positions between two corrections of the softmax.
CHUNK = 64
#: Below every score; what is masked lies lower still. Infinity would give NaN where all is masked.
LOWEST = np.float32(-1e30)


def rows_per_tile(group: int) -> int:
    """Rows of a sequence that a tile takes, with `group` query heads for each KV head."""
    return max(1, QUERIES // group)


@cache
def paged_prefill(head_dim: int, group: int, kind: int = PLAIN) -> Callable[..., None]:
    """Builds the kernel for heads of one shape.

    Args:
        head_dim: D.
        group: query heads that share a KV head, H / H_kv.
        kind: what the cache holds, see `cpu_kv_codes`.

    Returns:
        `kernel(q, k_cache, v_cache, k_scale, v_scale, block_tables, sequences, rows, counts,
        lengths, scale, window, out)`, which attends I tiles of up to `rows_per_tile(group)`
        consecutive rows:

        q: [T, H, D] float32.
        k_cache, v_cache: [num_blocks, H_kv, P, D] float32, int8, or uint8 (e4m3); contiguous.
        k_scale, v_scale: [num_blocks, H_kv, P] float32, of the codes in 8 bits; else anything.
        block_tables: [S, W] int32.
        sequences: [I] int64, each tile's sequence; in an order that splits the work evenly.
        rows: [I] int64, its first row in q and out.
        counts: [I] int64, its rows.
        lengths: [I] int64, tokens that its first row sees, its own included.
        scale: float32, multiplies the scores.
        window: int64, most tokens a row may see.
        out: [T, H, D] float32, contiguous; the tiles' rows are written.
    """
    return bind_tiles(
        _paged_prefill, head_dim, group, kind, {"_load": _load, "_store": _store}, _mask=njit(_mask)
    )


def bind_tiles(
    kernel: Callable[..., None],
    head_dim: int,
    group: int,
    kind: int,
    helpers: dict[str, Callable[..., Any]],
    **ready: Any,
) -> Callable[..., None]:
    """Compiles a kernel that folds chunks of positions into tiles of queries.

    Args:
        kernel: may use HEAD_DIM, GROUP, SHARE, SCRATCH, `score`, `weigh` and `add`.
        head_dim: D.
        group: H / H_kv.
        kind: what the cache holds.
        helpers: further functions of it, to be bound to the same shape.
        ready: what else its global names mean.
    """
    scratch = CHUNK if kind else 0
    shape = {"HEAD_DIM": head_dim, "GROUP": group, "SHARE": min(group, QUERIES), "SCRATCH": scratch}
    if kind:
        score, add = _score_codes, _add_codes
        reach = {"read": njit(bind(_read, unpack=make_unpack(kind, head_dim)))}
    else:
        score, add, reach = _score, _add, {"_page": njit(bind(_page, **shape))}
    for name, chunk, adds in (("score", score, False), ("add", add, True)):
        product = njit(bind(_product, many=_panel(SUMS, adds), one=_panel(1, adds)))
        ready[name] = njit(bind(chunk, **shape, **reach, product=product))
    for name, helper in {"weigh": _weigh, **helpers}.items():
        ready[name] = njit(fastmath=FAST)(bind(helper, **shape))
    whole = bind(kernel, **shape, KIND=kind, **ready)
    compiled: Callable[..., None] = njit(parallel=True, fastmath=FAST, cache=True, nogil=NOGIL)(
        whole
    )
    return compiled


#: Bound by `bind_tiles`; SHARE is how many query heads of a group a tile takes, SCRATCH how many
#: rows of codes are turned into numbers at once.
HEAD_DIM = GROUP = SHARE = SCRATCH = 1
score: Any = None
weigh: Any = None
add: Any = None
product: Any = None
read: Any = None
unpack: Any = None


def _paged_prefill(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, sequences, rows, counts, lengths,
    scale, window, out,
):  # fmt: skip
    kv_heads = k_cache.shape[1]
    pieces = (GROUP + SHARE - 1) // SHARE
    for item in prange(len(rows) * kv_heads * pieces):
        tile, head, piece = item // (kv_heads * pieces), item // pieces % kv_heads, item % pieces
        row, count, length = rows[tile], counts[tile], lengths[tile]
        table = block_tables[sequences[tile]]
        first_head = head * GROUP + piece * SHARE
        heads = min(SHARE, GROUP - piece * SHARE)
        queries = np.zeros((HEAD_DIM, QUERIES), np.float32)
        seen = np.full(QUERIES, length, np.int64)
        _load(q, row, count, first_head, heads, scale, queries, seen)
        total = np.zeros((HEAD_DIM, QUERIES), np.float32)
        highest = np.full(QUERIES, LOWEST, np.float32)
        weight_sum = np.zeros(QUERIES, np.float32)
        weights = np.zeros((CHUNK, QUERIES), np.float32)
        numbers = np.empty((SCRATCH, HEAD_DIM), np.float32)
        begin, end = max(0, length - window), length + count - 1
        for start in range(begin, end, CHUNK):
            stop = min(start + CHUNK, end)
            score(k_cache, k_scale, table, start, stop, head, queries, weights, numbers)
            if stop > length or start < end - window:
                _mask(weights, start, stop, seen, window)
            weigh(weights, stop - start, highest, weight_sum, total)
            add(v_cache, v_scale, table, start, stop, head, weights, total, numbers)
        _store(total, weight_sum, row, count, first_head, heads, out)


def _score(cache, scales, table, start, stop, head, queries, scores, numbers):
    """scores[j] = queries . key of position start + j, block by block."""
    address, kv_heads, size = cache.ctypes.data, cache.shape[1], cache.shape[2]
    at = start
    while at < stop:
        width = min(size - at % size, stop - at)
        page = _page(address, table, at, head, kv_heads, size)
        target = scores.ctypes.data + (at - start) * QUERIES * 4
        product(page, HEAD_DIM * 4, 4, queries.ctypes.data, HEAD_DIM, target, width)
        at += width


def _add(cache, scales, table, start, stop, head, weights, total, numbers):
    """total += sum over j of weights[j] and the value of position start + j, block by block."""
    address, kv_heads, size = cache.ctypes.data, cache.shape[1], cache.shape[2]
    at = start
    while at < stop:
        width = min(size - at % size, stop - at)
        page = _page(address, table, at, head, kv_heads, size)
        source = weights.ctypes.data + (at - start) * QUERIES * 4
        product(page, 4, HEAD_DIM * 4, source, width, total.ctypes.data, HEAD_DIM)
        at += width


def _score_codes(cache, scales, table, start, stop, head, queries, scores, numbers):
    """`_score`, of codes."""
    read(cache, scales, table, start, stop, head, numbers)
    keys, target = numbers.ctypes.data, scores.ctypes.data
    product(keys, HEAD_DIM * 4, 4, queries.ctypes.data, HEAD_DIM, target, stop - start)


def _add_codes(cache, scales, table, start, stop, head, weights, total, numbers):
    """`_add`, of codes."""
    read(cache, scales, table, start, stop, head, numbers)
    values, source = numbers.ctypes.data, weights.ctypes.data
    product(values, 4, HEAD_DIM * 4, source, stop - start, total.ctypes.data, HEAD_DIM)


def _read(cache, scales, table, start, stop, head, numbers):
    """Turns the codes of positions start .. stop-1 into numbers, block by block."""
    size = cache.shape[2]
    at = start
    while at < stop:
        block, offset = table[at // size], at % size
        width = min(size - offset, stop - at)
        unpack(cache[block, head], scales[block, head], offset, width, numbers[at - start :])
        at += width


def _page(address, table, position, head, kv_heads, size):
    """Where a head's key or value of a position lies; the rest of its block follows."""
    block = np.int64(table[position // size])
    return address + ((block * kv_heads + head) * size + position % size) * HEAD_DIM * 4


def _load(q, row, count, first_head, heads, scale, queries, seen):
    """Puts (row, head) pairs side by side in lanes: lane r * SHARE + g; the rest stays zero."""
    for r in range(count):
        for g in range(heads):
            seen[r * SHARE + g] += r
            for d in range(HEAD_DIM):
                queries[d, r * SHARE + g] = q[row + r, first_head + g, d] * scale


def _mask(scores, start, stop, seen, window):
    """Hides what comes after a row, or before its window."""
    for j in range(stop - start):
        for lane in range(QUERIES):
            if start + j >= seen[lane] or start + j < seen[lane] - window:
                scores[j, lane] = 2 * LOWEST


def _weigh(weights, count, highest, weight_sum, total):
    """Turns scores into weights e^(score - highest), and shrinks what was summed up before."""
    shrink = highest.copy()
    for j in range(count):
        for lane in range(QUERIES):
            highest[lane] = max(highest[lane], weights[j, lane])
    for lane in range(QUERIES):
        shrink[lane] = exp_nonpositive(shrink[lane] - highest[lane])
        weight_sum[lane] *= shrink[lane]
    for j in range(count):
        for lane in range(QUERIES):
            weights[j, lane] = exp_nonpositive(weights[j, lane] - highest[lane])
            weight_sum[lane] += weights[j, lane]
    for d in range(HEAD_DIM):
        for lane in range(QUERIES):
            total[d, lane] *= shrink[lane]


def _store(total, weight_sum, row, count, first_head, heads, out):
    for r in range(count):
        for g in range(heads):
            lane = r * SHARE + g
            for d in range(HEAD_DIM):
                out[row + r, first_head + g, d] = total[d, lane] / weight_sum[lane]


many: Any = None
one: Any = None


def _product(a, row_bytes, column_bytes, b, inner, c, rows):
    """`c = a b` or `c += a b`: a [rows, inner] with any strides, b [inner, QUERIES], by address."""
    done = rows // SUMS * SUMS
    for row in range(0, done, SUMS):
        many(a + row * row_bytes, row_bytes, column_bytes, b, inner, c + row * QUERIES * 4)
    for row in range(done, rows):
        one(a + row * row_bytes, row_bytes, column_bytes, b, inner, c + row * QUERIES * 4)


def _panel(rows: int, add: bool) -> Any:
    """Writes `panel(a, row_bytes, column_bytes, b, inner, c)`: `_product` of so many rows."""
    vectors_across = QUERIES // LANES

    @intrinsic
    def panel(typing, a, row_bytes, column_bytes, b, inner, c):
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, row_bytes, column_bytes, b, inner, c = arguments
            vectors = Vectors(builder)
            cells = [(row, vector) for row in range(rows) for vector in range(vectors_across)]
            places = [vectors.at(c, (row * QUERIES + vector * LANES, 4)) for row, vector in cells]
            loop = Loop(
                builder,
                inner,
                [vectors.load(p, FLOATS) if add else vectors.constant(0.0) for p in places],
            )
            line = vectors.at(b, (loop.index, QUERIES * 4))
            right = [
                vectors.load(vectors.at(line, (vector, LANES * 4)), FLOATS)
                for vector in range(vectors_across)
            ]
            column = vectors.at(a, (loop.index, column_bytes))
            left = [
                vectors.splat(vectors.load(vectors.at(column, (row, row_bytes)), FLOAT))
                for row in range(rows)
            ]
            sums = [
                vectors.fma(left[row], right[vector], total)
                for (row, vector), total in zip(cells, loop.values, strict=True)
            ]
            for place, total in zip(places, loop.close(sums), strict=True):
                vectors.store(total, place)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), codegen

    return panel
