"""What a decoder layer does from one attention to the next, in one call, for quantized models on CPUs.

A step of one row takes 30 layers of nine operations, and Python takes as long to call each as most of
them take to run. Here everything between two attentions is one function: output projection, norm,
MLP, norm, and the next layer's projection and rotation. Rows do not influence each other. The torch
reference is `minillm_serve.models.transformer.DecoderLayer`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_int_linear import int_linear
from minillm_serve.kernels.cpu_math import bind
from minillm_serve.kernels.cpu_pointwise import add_rms_norm, rms_norm, rotate, silu_mul
from minillm_serve.kernels.cpu_quantize_rows import GROUP, quantize_row
from numba import njit, prange

#: Rows up to which one thread does what is done row by row: waking others takes longer.
FEW_ROWS = 8
#: (bits, by_group) of a quantized weight, see `cpu_int_linear.int_linear`.
Kind = tuple[int, bool]


@cache
def projection(kind: Kind) -> Callable[..., None]:
    """Builds what comes before a layer's attention.

    Args:
        kind: of the projection's weight.

    Returns:
        `kernel(x, residual, norm, eps, weight, qk_norm, cos, sin, qk_heads, out)`: adds x to
        the residual stream, reads its norm, projects it to queries, keys and values, norms the heads of the first
        two, and rotates them.

        x: [T, hidden] float32, contiguous.
        residual: same, changed.
        norm: [hidden] float32.
        eps: of all norms, added to the mean square.
        weight: (codes, steps, starts, bias); bias [O] float32, or of no elements.
        qk_norm: [heads, D] float32, or of no elements.
        cos, sin: [T, 1, D] float32.
        qk_heads: of queries and keys; 0 where somebody else norms and rotates them.
        out: [T, heads of q, k and v, D] float32, contiguous, written.
    """
    kernel = bind(_project, BITS=kind[0], BY_GROUP=int(kind[1]), product=int_linear(*kind))
    compiled: Callable[..., None] = njit(cache=True)(kernel)
    return compiled


@cache
def feed_forward(o: Kind, gate_up: Kind, down: Kind) -> Callable[..., None]:
    """Builds what comes after a layer's attention.

    Args:
        o: kind of the output projection's weight.
        gate_up: of the MLP's first.
        down: of its second.

    Returns:
        `kernel(attended, residual, o, norm, eps, gate_up, down, out)`: projects what was attended,
        adds it to the residual stream, and gives its norm to the MLP; weights as in `projection`.

        attended: [T, H * D] float32, contiguous.
        residual: [T, hidden] float32, contiguous, changed.
        out: same, written: what is still to be added to the residual stream.
    """
    kinds = {"O": o, "GATE_UP": gate_up, "DOWN": down}
    products = {f"product_{name.lower()}": int_linear(*kind) for name, kind in kinds.items()}
    numbers = {name: 2 * bits + by_group for name, (bits, by_group) in kinds.items()}
    kernel = bind(_feed_forward, **numbers, **products, DOWN_BITS=down[0])
    compiled: Callable[..., None] = njit(cache=True)(kernel)
    return compiled


@cache
def between(o: Kind, gate_up: Kind, down: Kind, qkv: Kind) -> Callable[..., None]:
    """Builds both, one after the other, from one layer's attention to the next one's.

    Returns:
        `kernel(after, before)`: `feed_forward`'s arguments but the last, and `projection`'s but the
        first two.
    """
    kinds = {"O": o, "GATE_UP": gate_up, "DOWN": down, "QKV": qkv}
    numbers = {name: 2 * bits + by_group for name, (bits, by_group) in kinds.items()}
    parts = {"rest": feed_forward(o, gate_up, down), "project": projection(qkv)}
    compiled: Callable[..., None] = njit(cache=True)(bind(_between, **numbers, **parts))
    return compiled


#: Bound by the functions above.
DOWN_BITS = 0
product: Any = None
product_o: Any = None
product_gate_up: Any = None
product_down: Any = None
rest: Any = None
project: Any = None


def _between(after, before):
    x = np.empty_like(after[1])
    rest(*after, x)
    project(x, after[1], *before)


def _project(x, residual, norm, eps, weight, qk_norm, cos, sin, qk_heads, out):
    rows = len(x)
    codes, steps, sums = _room(rows, x.shape[1])
    _norm_and_quantize(x, residual, norm, eps, codes, steps, sums)
    flat = out.reshape(rows, out.shape[1] * out.shape[2])
    product(weight[0], weight[1], weight[2], codes, steps, sums, flat)
    _add_bias(flat, weight[3])
    if qk_heads:
        _norm_and_rotate(out[:, :qk_heads], qk_norm, eps, cos, sin)


def _feed_forward(attended, residual, o, norm, eps, gate_up, down, out):
    rows, hidden = residual.shape
    codes, steps, sums = _room(rows, attended.shape[1])
    _quantize(attended, codes, steps, sums)
    product_o(o[0], o[1], o[2], codes, steps, sums, out)
    _add_bias(out, o[3])
    codes, steps, sums = _room(rows, hidden)
    _norm_and_quantize(out, residual, norm, eps, codes, steps, sums)
    inner = down[0].shape[1] * 32 // DOWN_BITS
    wide = np.empty((rows, 2 * inner), np.float32)
    product_gate_up(gate_up[0], gate_up[1], gate_up[2], codes, steps, sums, wide)
    _add_bias(wide, gate_up[3])
    codes, steps, sums = _room(rows, inner)
    _gate_and_quantize(wide, codes, steps, sums)
    product_down(down[0], down[1], down[2], codes, steps, sums, out)
    _add_bias(out, down[3])


@njit(cache=True)
def _room(rows, width):
    """Where quantized rows go: codes, steps, sums."""
    groups = width // GROUP
    steps, sums = np.empty((rows, groups), np.float32), np.empty((rows, groups), np.int32)
    return np.empty((rows, width), np.int8), steps, sums


@njit(parallel=True, cache=True)
def _quantize(x, codes, steps, sums):
    if len(x) <= FEW_ROWS:
        for row in range(len(x)):
            quantize_row(x[row], row, codes, steps, sums)
    else:
        for row in prange(len(x)):
            quantize_row(x[row], row, codes, steps, sums)


@njit(parallel=True, cache=True)
def _norm_and_quantize(x, residual, norm, eps, codes, steps, sums):
    if len(x) <= FEW_ROWS:
        for row in range(len(x)):
            _norm_row(x, residual, norm, eps, row, codes, steps, sums)
    else:
        for row in prange(len(x)):
            _norm_row(x, residual, norm, eps, row, codes, steps, sums)


@njit(cache=True)
def _norm_row(x, residual, norm, eps, row, codes, steps, sums):
    normed = np.empty((1, x.shape[1]), np.float32)
    add_rms_norm(x[row : row + 1], residual[row : row + 1], norm, eps, normed)
    quantize_row(normed[0], row, codes, steps, sums)


@njit(parallel=True, cache=True)
def _gate_and_quantize(gate_up, codes, steps, sums):
    if len(gate_up) <= FEW_ROWS:
        for row in range(len(gate_up)):
            _gate_row(gate_up, row, codes, steps, sums)
    else:
        for row in prange(len(gate_up)):
            _gate_row(gate_up, row, codes, steps, sums)


@njit(cache=True)
def _gate_row(gate_up, row, codes, steps, sums):
    gated = np.empty((1, codes.shape[1]), np.float32)
    silu_mul(gate_up[row : row + 1], gated)
    quantize_row(gated[0], row, codes, steps, sums)


@njit(parallel=True, cache=True)
def _norm_and_rotate(qk, qk_norm, eps, cos, sin):
    if len(qk) <= FEW_ROWS:
        for row in range(len(qk)):
            _rotate_row(qk[row : row + 1], qk_norm, eps, cos[row : row + 1], sin[row : row + 1])
    else:
        for row in prange(len(qk)):
            _rotate_row(qk[row : row + 1], qk_norm, eps, cos[row : row + 1], sin[row : row + 1])


@njit(cache=True)
def _rotate_row(qk, qk_norm, eps, cos, sin):
    if qk_norm.size:
        rms_norm(qk, qk_norm, eps, qk)
    rotate(qk, cos, sin, qk)


@njit(cache=True)
def _add_bias(out, bias):
    if bias.size:
        for row in range(len(out)):
            for i in range(len(bias)):
                out[row, i] += bias[i]
