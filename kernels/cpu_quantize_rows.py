"""Rows of float32, quantized to signed bytes in groups of 32, for the integer products of CPUs.

A group's step is its largest magnitude divided by 127, as in GGUF's Q8_0. One step for a whole row
would be cheaper to multiply with, and costs the embedded model 4 % of perplexity: single columns
are forty times as large as the rest.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from minillm_serve.kernels.cpu_vectors import BYTES, FLOAT, FLOATS, INT, INTS, LANES, Vectors
from numba import njit, types
from numba.extending import intrinsic

#: Columns that share a step.
GROUP = 2 * LANES
#: The largest code.
MOST = 127
_MAGNITUDE = 0x7FFFFFFF  # all bits of a float32 but its sign
_INFINITY = 0x7F800000


@intrinsic
def _quantize_group(typing_context: Any, x: Any, codes: Any, step: Any, total: Any) -> Any:
    """Quantizes 32 float32; all arguments are addresses.

    Integers compare like the magnitudes whose bits they are, and NaN is larger than infinity: one
    maximum finds the largest, and whatever is no number. Of that the step becomes NaN, and with it
    all that is computed from the row.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, codes, step, total = arguments
        vectors = Vectors(builder)
        halves = [vectors.load(vectors.at(x, (half, LANES * 4)), FLOATS) for half in (0, 1)]
        sign = vectors.constant(_MAGNITUDE, INTS)
        bits = [builder.and_(builder.bitcast(half, INTS), sign) for half in halves]
        larger = builder.icmp_signed(">", *bits)
        reduce_max = f"llvm.vector.reduce.smax.v{LANES}i32"
        top_bits = vectors.call(reduce_max, INT, builder.select(larger, *bits))
        top = builder.bitcast(top_bits, FLOAT)
        # Below, 127 / top would overflow; nothing that small says anything.
        is_small = builder.fcmp_ordered("<", top, FLOAT(1e-35))
        is_number = builder.icmp_signed("<", top_bits, INT(_INFINITY))
        inverse = builder.select(is_small, FLOAT(0.0), builder.fdiv(FLOAT(float(MOST)), top))
        inverse = vectors.splat(builder.select(is_number, inverse, FLOAT(0.0)))
        width = builder.select(is_small, FLOAT(0.0), builder.fdiv(top, FLOAT(float(MOST))))
        nan = ir.Constant(FLOAT, float("nan"))
        vectors.store(builder.select(is_number, width, nan), step)
        sums = None
        for half, values in enumerate(halves):
            rounded = vectors.call(f"llvm.rint.v{LANES}f32", FLOATS, builder.fmul(values, inverse))
            whole = vectors.call(f"llvm.fptosi.sat.v{LANES}i32.v{LANES}f32", INTS, rounded)
            place = builder.inttoptr(vectors.at(codes, (half, LANES)), BYTES.as_pointer())
            builder.store(builder.trunc(whole, BYTES), place).align = 1
            sums = whole if sums is None else builder.add(sums, whole)
        vectors.store(vectors.call(f"llvm.vector.reduce.add.v{LANES}i32", INT, sums), total)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@njit(cache=True)
def quantize_row(
    x: np.ndarray, row: int, codes: np.ndarray, steps: np.ndarray, sums: np.ndarray
) -> None:
    """Quantizes one row; for the arrays see `quantize_rows`, x is a row of its x."""
    groups = steps.shape[1]
    for group in range(groups):
        at = row * groups + group
        _quantize_group(  # type: ignore[call-arg] # Numba adds the first argument
            x.ctypes.data + group * GROUP * 4,
            codes.ctypes.data + at * GROUP,
            steps.ctypes.data + at * 4,
            sums.ctypes.data + at * 4,
        )


@njit(cache=True)
def quantize_rows(x: np.ndarray, codes: np.ndarray, steps: np.ndarray, sums: np.ndarray) -> None:
    """Quantizes rows.

    Args:
        x: [R, I] float32, contiguous; I is a multiple of 32.
        codes: [R, I] int8, written.
        steps: [R, I / 32] float32, written; NaN where x is not finite.
        sums: [R, I / 32] int32, written: of each group's codes.
    """
    for row in range(len(x)):
        quantize_row(x[row], row, codes, steps, sums)
