"""What happens between matrix products, fused for CPUs, in Numba.

At small batch a torch operation costs more to dispatch than to compute. Each function here does the
work of several in one pass over memory, on one thread: the loops are too short for more. The torch
references stand in `minillm_serve.models.functional`.
"""

import math

import numpy as np
from minillm_serve.kernels.cpu_math import FAST, exp_nonpositive
from numba import njit


@njit(fastmath=FAST, cache=True)
def add_rms_norm(
    x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float, out: np.ndarray
) -> None:
    """`residual += x`, then `out = residual / sqrt(mean(residual^2) + eps) * weight`.

    Args:
        x: [T, width] float32.
        residual: [T, width], changed.
        weight: [width].
        eps: added to the mean square.
        out: [T, width], written.
    """
    width = x.shape[1]
    for token in range(x.shape[0]):
        square = np.float32(0)
        for i in range(width):
            residual[token, i] += x[token, i]
            square += residual[token, i] * residual[token, i]
        scale = np.float32(1 / math.sqrt(square / width + eps))
        for i in range(width):
            out[token, i] = residual[token, i] * scale * weight[i]


@njit(fastmath=FAST, cache=True)
def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, out: np.ndarray) -> None:
    """`out = x / sqrt(mean(x^2) + eps) * weight`, over the last dimension.

    Args:
        x: [T, rows, width] float32; T and rows may be strided.
        weight: [rows, width].
        eps: added to the mean square.
        out: [T, rows, width], written; may be x.
    """
    width = x.shape[2]
    for token in range(x.shape[0]):
        for row in range(x.shape[1]):
            square = np.float32(0)
            for i in range(width):
                square += x[token, row, i] * x[token, row, i]
            scale = np.float32(1 / math.sqrt(square / width + eps))
            for i in range(width):
                out[token, row, i] = x[token, row, i] * scale * weight[row, i]


@njit(fastmath=FAST, cache=True)
def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, out: np.ndarray) -> None:
    """Turns each pair (x[i], x[i + D/2]) of a head by its angle.

    Args:
        x: [T, heads, D] float32; T and heads may be strided.
        cos: [T, 1, D].
        sin: [T, 1, D], its first half negated.
        out: [T, heads, D], written.
    """
    half = x.shape[2] // 2
    for token in range(x.shape[0]):
        for head in range(x.shape[1]):
            for i in range(half):
                a, b = x[token, head, i], x[token, head, half + i]
                out[token, head, i] = a * cos[token, 0, i] + b * sin[token, 0, i]
                out[token, head, half + i] = (
                    b * cos[token, 0, half + i] + a * sin[token, 0, half + i]
                )


@njit(fastmath=FAST, cache=True, error_model="numpy")
def silu_mul(gate_up: np.ndarray, out: np.ndarray) -> None:
    """`out = gate / (1 + e^-gate) * up`.

    With e = e^-|gate|, the fraction is 1 / (1 + e) for positive gates and e / (1 + e) for others:
    nothing overflows.

    Args:
        gate_up: [T, 2 * width] float32, gate first.
        out: [T, width], written.
    """
    width = out.shape[1]
    one = np.float32(1)
    for token in range(gate_up.shape[0]):
        for i in range(width):
            gate = gate_up[token, i]
            e = exp_nonpositive(-abs(gate))
            top = one if gate > 0 else e
            out[token, i] = gate * top / (one + e) * gate_up[token, width + i]
