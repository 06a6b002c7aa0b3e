"""What happens between matrix products, fused for CPUs, in Numba.

At small batch a torch operation costs more to dispatch than to compute. Each function here does the
work of several in one pass over memory, on one thread: these loops are too short for two, and a
second pool of threads beside torch's would only get in its way. The torch references stand in
`minillm_serve.models.functional`.
"""

import math

import numpy as np
from numba import njit

# Sums may be reordered, so that they vectorise. NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}


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
