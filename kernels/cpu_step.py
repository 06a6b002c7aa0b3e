"""A whole step of a quantized model on a CPU as one function: no Python between two layers.

For steps in which every row attends its context alone, over a cache in float32: decoding, that is.
The functions of a layer are those of `cpu_layers`, `cpu_attention` and `kv_write`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_attention import kv_write, paged_decode
from minillm_serve.kernels.cpu_layers import Kinds, feed_forward, floats, projection
from minillm_serve.kernels.cpu_math import NOGIL, bind
from numba import njit


@cache
def decode_layers(kinds: Kinds, head_dim: int, group: int) -> Callable[..., None]:
    """Builds the function for models all of whose layers have weights of the same kinds.

    Args:
        kinds: they.
        head_dim: D.
        group: query heads that share a KV head, H / H_kv.

    Returns:
        `kernel(layers, x, residual, eps, cos, sin, qkv, caches, cache_shape, slots, block_tables,
        rows, sequences, lengths, begins, scale, windows, out)`:

        layers: [N, FIELDS] int64, of `cpu_layers`' table, those that are run.
        x, residual, eps, cos, sin: as for `projection`, of the first layer.
        qkv: [T, H + 2 H_kv, D] float32, written: room for one layer's.
        caches: [N, 2] int64, addresses of each layer's key and value caches,
        cache_shape: of them, (num_blocks, H_kv, P, D); float32, contiguous, written.
        slots: [T] int64, where each row's key and value go.
        block_tables, rows, sequences, lengths, begins, scale: as for `paged_decode`.
        windows: [N] int64, most tokens a row may see in each layer.
        out: as for `feed_forward`, of the last layer.
    """
    numbers = {name.upper(): 10 * kind[0] + kind[1] for name, kind in kinds._asdict().items()}
    parts = {
        "project": projection(kinds),
        "rest": feed_forward(kinds),
        "attend": paged_decode(head_dim, group),
    }
    shape = {"HEAD_DIM": head_dim, "SHARED": group}
    kernel = bind(_decode_layers, **numbers, **shape, **parts)
    compiled: Callable[..., None] = njit(cache=True, nogil=NOGIL)(kernel)
    return compiled


#: Bound by `decode_layers`.
project: Any = None
rest: Any = None
attend: Any = None
SHARED = 1


def _decode_layers(
    layers, x, residual, eps, cos, sin, qkv, caches, cache_shape, slots, block_tables,
    rows, sequences, lengths, begins, scale, windows, out,
):  # fmt: skip
    num_rows, heads, dim = qkv.shape
    kv_heads = cache_shape[1]
    q_heads, qk_heads = heads - 2 * kv_heads, heads - kv_heads
    size = cache_shape[0] * kv_heads * cache_shape[2] * dim
    attended = np.empty((num_rows, q_heads, dim), np.float32)
    flat = attended.reshape(num_rows, q_heads * dim)
    # Nobody has begun on these rows, and what the cache holds are no codes.
    totals, tops = np.empty((0, q_heads, dim), np.float32), np.empty((0, q_heads), np.float32)
    no_scales = np.zeros((1, 1, 1), np.float32)
    for layer in range(len(layers)):
        project(layers[layer], x, residual, eps, cos, sin, qk_heads, qkv)
        k_cache = floats(caches[layer, 0], size).reshape(cache_shape)
        v_cache = floats(caches[layer, 1], size).reshape(cache_shape)
        kv_write(qkv[:, q_heads:qk_heads], qkv[:, qk_heads:], slots, k_cache, v_cache)
        attend(
            qkv[:, :q_heads], k_cache, v_cache, no_scales, no_scales, block_tables, rows, sequences,
            lengths, begins, totals, tops, tops, scale, windows[layer], attended,
        )  # fmt: skip
        rest(layers[layer], flat, residual, eps, out)
        x = out
