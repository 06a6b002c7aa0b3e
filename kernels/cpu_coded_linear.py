"""Products with weights that are kept as 4- or 8-bit codes, for CPUs.

A product with few rows is as fast as the weights can be read, and codes are a fifth or a third of
float32's bytes. They become float32 in registers, one vector at a time, and each vector is used for
all rows. It is written in LLVM's vector instructions: no compiler makes them of a loop that
unpacks, scales, multiplies and adds. The torch reference is `minillm_serve.models.codes`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding
from minillm_serve.kernels.cpu_math import NOGIL, bind
from minillm_serve.kernels.cpu_vectors import (
    BYTES,
    FLOAT,
    FLOATS,
    INTS,
    LANES,
    WIDE_REGISTERS,
    Loop,
    Vectors,
)
from numba import njit, prange, types
from numba.extending import intrinsic

#: Weights that share a step and a start.
GROUP = 2 * LANES
#: Rows of x whose sums stay in registers.
TILE = 8 if WIDE_REGISTERS else 4
#: Bytes by which codes are fetched ahead.
AHEAD = 256
#: Rows up to which this beats torch's product with the float32 weights, out of main memory.
#: Measured on an Intel Xeon and an AMD EPYC with AVX-512: on the latter torch's are slower.
FEW_ROWS = 128 if WIDE_REGISTERS and binding.get_host_cpu_name().startswith("znver") else 24


def coded_linear(
    codes: np.ndarray, steps: np.ndarray, starts: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """`out = x W^T` with `W = start + step * code`, in float32.

    A row's result is the same, to the last bit, whatever rows stand beside it.

    Args:
        codes: [O, G, 16 or 32] uint8. In 16 bytes, the low halves are the codes of a group's first
            16 weights, the high halves those of the others; 32 bytes hold a code each.
        steps: [O, G] float32.
        starts: [O, G] float32.
        x: [R, 32 G] float32, contiguous.
        out: [R, O] float32, contiguous, written.
    """
    bits, row, rows = codes.shape[2] // 4, 0, len(x)
    while row < rows:
        tile = min(TILE, rows - row)
        _kernel(bits, tile)(codes, steps, starts, x[row : row + tile], out[row : row + tile])
        row += tile


@cache
def _kernel(bits: int, rows: int) -> Callable[..., None]:
    """The kernel for so many rows; at most `TILE`."""
    kernel = bind(_coded_linear, BITS=bits, ROWS=rows, dot=_make_dot(bits, rows))
    compiled: Callable[..., None] = njit(parallel=True, cache=True, nogil=NOGIL)(kernel)
    return compiled


#: Bound by `_kernel`.
BITS = ROWS = 0
dot: Any = None


def _coded_linear(codes, steps, starts, x, out):
    outputs, groups = steps.shape
    for o in prange(outputs):
        dot(
            codes.ctypes.data + o * groups * 4 * BITS,
            steps.ctypes.data + o * groups * 4,
            starts.ctypes.data + o * groups * 4,
            groups,
            x.ctypes.data,
            out.ctypes.data + o * 4,
            outputs * 4,
        )


def _make_dot(bits: int, rows: int) -> Any:
    """Writes `dot(codes, steps, starts, groups, x, out, stride)`: a row of W with rows of x.

    All arguments are addresses but `groups`, and `stride`, bytes from a result to the next.
    """

    @intrinsic
    def dot(typing, codes, steps, starts, groups, x, out, stride):
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            codes, steps, starts, groups, x, out, stride = arguments
            vectors = Vectors(builder)
            loop = Loop(builder, groups, [vectors.constant(0.0)] * rows)
            halves = _weights(vectors, codes, steps, starts, loop.index, bits)
            sums = list(loop.values)
            for row in range(rows):
                group = builder.add(builder.mul(groups, groups.type(row)), loop.index)
                for half, weights in enumerate(halves):
                    at = vectors.at(x, (group, GROUP * 4), (half, LANES * 4))
                    sums[row] = vectors.fma(weights, vectors.load(at, FLOATS), sums[row])
            for row, total in enumerate(loop.close(sums)):
                vectors.store(vectors.sum(total), vectors.at(out, (row, stride)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), codegen

    return dot


def _weights(vectors: Vectors, codes: Any, steps: Any, starts: Any, group: Any, bits: int) -> Any:
    """The first and the second half of a group's weights, as float32."""
    build, at = vectors.builder, vectors.at(codes, (group, 4 * bits))
    vectors.prefetch(vectors.at(at, (AHEAD, 1)))
    low = build.zext(vectors.load(at, BYTES, align=1), INTS)
    if bits == 4:
        high = build.lshr(low, vectors.constant(4, INTS))
        low = build.and_(low, vectors.constant(15, INTS))
    else:
        high = build.zext(vectors.load(vectors.at(at, (LANES, 1)), BYTES, align=1), INTS)
    step = vectors.splat(vectors.load(vectors.at(steps, (group, 4)), FLOAT))
    start = vectors.splat(vectors.load(vectors.at(starts, (group, 4)), FLOAT))
    # Signed, because old processors convert unsigned integers slowly; all codes are small.
    return [vectors.fma(build.sitofp(code, FLOATS), step, start) for code in (low, high)]
