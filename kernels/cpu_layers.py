"""The layers of a quantized model on a CPU, with as little as possible between their kernels.

A step of one row takes thirty layers of nine operations, and for Python each takes about as long to
call as to run. So what is between two attentions is one function here: output projection, norm,
MLP, norm, the next layer's projection, and rotation. Where attention, too, is a kernel of ours on
plain float32, a whole step is one function (`cpu_step`). Rows do not influence each other. The
reference is `minillm_serve.models.transformer.DecoderLayer`.

A model is given as a table of addresses, `[layers, FIELDS]` int64: what never changes is not
unpacked thirty times a step.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from minillm_serve.kernels.cpu_int_linear import int_linear
from minillm_serve.kernels.cpu_math import NOGIL, bind
from minillm_serve.kernels.cpu_pointwise import add_rms_norm, rms_norm, rotate, silu_mul
from minillm_serve.kernels.cpu_quantize_rows import GROUP, quantize_row
from numba import carray, njit, prange, types
from numba.extending import intrinsic

#: Rows up to which one thread does what is done row by row: waking others takes longer.
FEW_ROWS = 8
#: Columns of the table: four of each product (codes, steps, starts, bias), the norms' weights, and
#: the width of the MLP. An address of 0 stands for what the model does not have.
QKV, OUT, GATE_UP, DOWN, INPUT_NORM, MLP_NORM, QK_NORM, INNER = 0, 4, 8, 12, 16, 17, 18, 19
FIELDS = 20


class Kinds(NamedTuple):
    """(bits, by_group) of a layer's weights, see `cpu_int_linear.int_linear`."""

    qkv: tuple[int, bool]
    o: tuple[int, bool]
    gate_up: tuple[int, bool]
    down: tuple[int, bool]


@cache
def projection(kinds: Kinds) -> Callable[..., None]:
    """Builds what comes before a layer's attention.

    Returns:
        `kernel(layer, x, residual, eps, cos, sin, qk_heads, out)`: adds x to the residual stream,
        reads its norm, projects it to queries, keys and values, norms the heads of the first two,
        and rotates them.

        layer: [FIELDS] int64, of the table.
        x: [T, hidden] float32, contiguous.
        residual: same, changed.
        eps: of all norms, added to the mean square.
        cos, sin: [T, 1, D] float32.
        qk_heads: of queries and keys; 0 where somebody else norms and rotates them.
        out: [T, heads of q, k and v, D] float32, contiguous, written.
    """
    product = int_linear(*kinds.qkv)
    kernel = bind(_project, QKV_KIND=_number(kinds.qkv), product=product)
    compiled: Callable[..., None] = njit(cache=True, nogil=NOGIL)(kernel)
    return compiled


@cache
def feed_forward(kinds: Kinds) -> Callable[..., None]:
    """Builds what comes after a layer's attention.

    Returns:
        `kernel(layer, attended, residual, eps, out)`: projects what was attended, adds it to the
        residual stream, and gives its norm to the MLP.

        layer: as in `projection`.
        attended: [T, H * D] float32, contiguous.
        residual: [T, hidden] float32, contiguous, changed.
        eps: as in `projection`.
        out: like residual, written: what is still to be added to the stream.
    """
    parts = ("o", "gate_up", "down")
    products = {f"product_{name}": int_linear(*getattr(kinds, name)) for name in parts}
    numbers = {f"{name}_kind".upper(): _number(getattr(kinds, name)) for name in parts}
    kernel = bind(_feed_forward, **numbers, **products)
    compiled: Callable[..., None] = njit(cache=True, nogil=NOGIL)(kernel)
    return compiled


@cache
def between(kinds: Kinds, following: Kinds) -> Callable[..., None]:
    """Builds both, from one layer's attention to the next one's.

    Returns:
        `kernel(layer, following, attended, residual, eps, cos, sin, qk_heads, out)`, see above.
    """
    numbers = {f"{name}_kind".upper(): _number(kind) for name, kind in kinds._asdict().items()}
    parts = {"rest": feed_forward(kinds), "project": projection(following)}
    kernel = bind(_between, **numbers, NEXT_KIND=_number(following.qkv), **parts)
    compiled: Callable[..., None] = njit(cache=True, nogil=NOGIL)(kernel)
    return compiled


def _number(kind: tuple[int, bool]) -> int:
    return 10 * kind[0] + kind[1]


#: Bound by the functions above; the integers only tell kernels apart in Numba's cache.
product: Any = None
product_o: Any = None
product_gate_up: Any = None
product_down: Any = None
rest: Any = None
project: Any = None


def _between(layer, following, attended, residual, eps, cos, sin, qk_heads, out):
    x = np.empty_like(residual)
    rest(layer, attended, residual, eps, x)
    project(following, x, residual, eps, cos, sin, qk_heads, out)


def _project(layer, x, residual, eps, cos, sin, qk_heads, out):
    rows, hidden = x.shape
    codes, steps, sums = _room(rows, hidden)
    _norm_and_quantize(x, residual, floats(layer[INPUT_NORM], hidden), eps, codes, steps, sums)
    flat = out.reshape(rows, out.shape[1] * out.shape[2])
    product(layer[QKV], layer[QKV + 1], layer[QKV + 2], codes, steps, sums, flat)
    _add_bias(flat, layer[QKV + 3])
    if qk_heads:
        _norm_and_rotate(out[:, :qk_heads], layer[QK_NORM], eps, cos, sin)


def _feed_forward(layer, attended, residual, eps, out):
    rows, hidden = residual.shape
    codes, steps, sums = _room(rows, attended.shape[1])
    _quantize(attended, codes, steps, sums)
    product_o(layer[OUT], layer[OUT + 1], layer[OUT + 2], codes, steps, sums, out)
    _add_bias(out, layer[OUT + 3])
    codes, steps, sums = _room(rows, hidden)
    _norm_and_quantize(out, residual, floats(layer[MLP_NORM], hidden), eps, codes, steps, sums)
    inner = layer[INNER]
    wide = np.empty((rows, 2 * inner), np.float32)
    product_gate_up(
        layer[GATE_UP], layer[GATE_UP + 1], layer[GATE_UP + 2], codes, steps, sums, wide
    )
    _add_bias(wide, layer[GATE_UP + 3])
    codes, steps, sums = _room(rows, inner)
    _gate_and_quantize(wide, codes, steps, sums)
    product_down(layer[DOWN], layer[DOWN + 1], layer[DOWN + 2], codes, steps, sums, out)
    _add_bias(out, layer[DOWN + 3])


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), codegen


@njit(cache=True)
def floats(address, count):
    """[count] float32 at an address."""
    return carray(_pointer(address), (count,), np.float32)  # type: ignore[call-arg]


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
    if qk_norm:
        shape = qk.shape[1:]
        rms_norm(qk, floats(qk_norm, shape[0] * shape[1]).reshape(shape), eps, qk)
    rotate(qk, cos, sin, qk)


@njit(cache=True)
def _add_bias(out, bias):
    if bias:
        values = floats(bias, out.shape[1])
        for row in range(len(out)):
            for i in range(len(values)):
                out[row, i] += values[i]
