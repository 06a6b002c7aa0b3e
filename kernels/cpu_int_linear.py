"""Products of quantized rows with quantized weights, in integers, for CPUs.

Weights have 8 or 4 bits, rows 8 (`cpu_quantize_rows`). Within a group of 32 columns everything is a
sum of small integers, which is exact in any order; then the two steps multiply it, and groups are
added up in float32, from first to last. So a row's result is the same to the last bit whatever rows
stand beside it, and whatever processor does it.

Weights are laid out as they are read, `[O/32, K/4, 32, 4]`: 32 outputs by four columns are 128
bytes, which two instructions multiply with four columns of a row (`cpu_int_dot`). Four bits lie two
columns to a byte: `[O/32, K/8, 32, 4]`, columns 8i .. 8i+3 in the low halves, 8i+4 .. 8i+7 in the
high ones. The torch reference is `minillm_serve.models.quantized`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_int_dot import dot4
from minillm_serve.kernels.cpu_math import NOGIL, bind
from minillm_serve.kernels.cpu_quantize_rows import GROUP
from minillm_serve.kernels.cpu_vectors import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    WIDE_REGISTERS,
    Loop,
    Vectors,
)
from numba import njit, prange, types
from numba.extending import intrinsic

#: Outputs that are computed together: two vectors.
TILE = 2 * LANES
#: Rows that are computed together, as many as registers hold; then 4, 2 and 1 of what is left.
ROWS = 6 if WIDE_REGISTERS else 2
#: Bytes by which weights are fetched ahead.
AHEAD = 1024

Product = Callable[..., None]


@cache
def int_linear(bits: int, by_group: bool) -> Product:
    """Builds the product for one kind of weights.

    Args:
        bits: 8: a weight is `step * (code - 128)`; 4: it is `start + step * code`.
        by_group: whether steps belong to groups of 32 columns; otherwise to whole outputs. Four
            bits always have groups.

    Returns:
        `kernel(codes, steps, starts, x, x_steps, x_sums, out)`, to be called from Python or Numba;
        weights are given by their addresses, so that a call of many takes no longer to prepare:

        codes: of [O/32, K/4, 32, 4] or [O/32, K/8, 32, 4] uint8, see above.
        steps: of [O/32, K/32, 32] float16, or [O/32, 1, 32] float32 without groups.
        starts: of the same as steps; with 8 bits it is not looked at.
        x: [R, K] int8; K is a multiple of 32.
        x_steps: [R, K/32] float32.
        x_sums: [R, K/32] int32, of each group's codes.
        out: [R, O'] float32, contiguous, written; O' is at most O, and more than O - 32.
    """
    # Those of more rows than registers hold are never called.
    tiles = {f"tile{rows}": _make_tile(bits, by_group, min(rows, ROWS)) for rows in (1, 2, 4, 6)}
    kernel = bind(_int_linear, BITS=bits, BY_GROUP=int(by_group), **tiles)
    compiled: Product = njit(parallel=True, cache=True, nogil=NOGIL)(kernel)
    return compiled


#: Bound by `int_linear`.
BITS = BY_GROUP = 0
tile1: Any = None
tile2: Any = None
tile4: Any = None
tile6: Any = None


def _int_linear(codes, steps, starts, x, x_steps, x_sums, out):
    rows, outputs = out.shape
    groups = x_steps.shape[1]
    tile_bytes, step_bytes = groups * GROUP * 4 * BITS, TILE * 4
    if BY_GROUP:
        step_bytes = groups * TILE * 2
    for tile in prange((outputs + TILE - 1) // TILE):
        c = codes + tile * tile_bytes
        s, t = steps + tile * step_bytes, starts + tile * step_bytes
        count = min(TILE, outputs - tile * TILE)
        target, stride = out.ctypes.data + tile * TILE * 4, outputs * 4
        spare = np.empty((rows if count < TILE else 0, TILE), np.float32)
        if count < TILE:
            target, stride = spare.ctypes.data, TILE * 4
        row = 0
        while row < rows:
            a = x.ctypes.data + row * groups * GROUP
            b, d = x_steps.ctypes.data + row * groups * 4, x_sums.ctypes.data + row * groups * 4
            left, to = rows - row, target + row * stride
            if ROWS >= 6 and left >= 6:
                tile6(c, s, t, groups, a, b, d, to, stride)
                row += 6
            elif ROWS >= 4 and left >= 4:
                tile4(c, s, t, groups, a, b, d, to, stride)
                row += 4
            elif left >= 2:
                tile2(c, s, t, groups, a, b, d, to, stride)
                row += 2
            else:
                tile1(c, s, t, groups, a, b, d, to, stride)
                row += 1
        if count < TILE:
            out[:, tile * TILE :] = spare[:, :count]


def _make_tile(bits: int, by_group: bool, rows: int) -> Any:
    """Writes `tile(codes, steps, starts, groups, x, x_steps, x_sums, out, stride)`.

    It computes 32 outputs of so many rows. All arguments are addresses but `groups`, and `stride`,
    bytes from a row's outputs to the next one's.
    """

    @intrinsic
    def tile(typing, codes, steps, starts, groups, x, x_steps, x_sums, out, stride):
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            codes, steps, starts, groups, x, x_steps, x_sums, out, stride = arguments
            vectors = Vectors(builder)
            loop = Loop(builder, groups, [vectors.constant(0.0)] * (2 * rows))
            index, width = loop.index, builder.mul(groups, groups.type(GROUP))
            begin = vectors.at(x, (index, GROUP))
            inputs = [vectors.at(begin, (row, width)) for row in range(rows)]
            sums = [_of_group(vectors, x_sums, groups, index, row, INT) for row in range(rows)]
            dots = _dots(vectors, vectors.at(codes, (index, TILE * 4 * bits)), inputs, sums, bits)
            totals = list(loop.values)
            for row in range(rows):
                step = vectors.splat(_of_group(vectors, x_steps, groups, index, row, FLOAT))
                for half in (0, 1):
                    value = builder.sitofp(dots[row][half], FLOATS)
                    if bits == 4:
                        total = vectors.splat(builder.sitofp(sums[row], FLOAT))
                        start = builder.fmul(_halves(vectors, starts, index, half), total)
                        value = vectors.fma(value, _halves(vectors, steps, index, half), start)
                    elif by_group:
                        value = builder.fmul(value, _halves(vectors, steps, index, half))
                    place = 2 * row + half
                    totals[place] = vectors.fma(value, step, totals[place])
            for place, total in enumerate(loop.close(totals)):
                row, half = divmod(place, 2)
                if not by_group:
                    at = vectors.at(steps, (half, LANES * 4))
                    total = builder.fmul(total, vectors.load(at, FLOATS))
                vectors.store(total, vectors.at(out, (row, stride), (half, LANES * 4)))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), codegen

    return tile


def _dots(vectors: Vectors, codes: Any, inputs: Any, sums: Any, bits: int) -> Any:
    """For each row, two vectors of int32: a group's codes times the row's, for 32 outputs."""
    build = vectors.builder
    # 8 bits are signed numbers plus 128, so that 128 times the row's codes is taken off.
    starts = [build.neg(build.shl(total, INT(7))) if bits == 8 else INT(0) for total in sums]
    dots = [[vectors.splat(start)] * 2 for start in starts]
    for four in range(0, GROUP // 4, 8 // bits):
        loaded = [
            vectors.load(vectors.at(codes, (four * bits // 8, 4 * TILE), (half, 4 * LANES)), INTS)
            for half in (0, 1)
        ]
        for half in (0, 1):
            vectors.prefetch(
                vectors.at(codes, (four * bits // 8, 4 * TILE), (half, 4 * LANES), (AHEAD, 1))
            )
        for part in range(8 // bits):
            weights = loaded
            if bits == 4:
                shift, low = vectors.constant(4, INTS), vectors.constant(0x0F0F0F0F, INTS)
                weights = [build.and_(build.lshr(w, shift) if part else w, low) for w in loaded]
            for row, address in enumerate(inputs):
                word = vectors.splat(vectors.load(vectors.at(address, (four + part, 4)), INT))
                for half in (0, 1):
                    dots[row][half] = dot4(vectors, dots[row][half], weights[half], word)
    return dots


def _of_group(vectors: Vectors, base: Any, groups: Any, group: Any, row: int, kind: Any) -> Any:
    """Entry [row, group] of an array [R, G] of 32-bit numbers."""
    at = vectors.builder.add(vectors.builder.mul(groups, groups.type(row)), group)
    return vectors.load(vectors.at(base, (at, 4)), kind)


def _halves(vectors: Vectors, base: Any, group: Any, half: int) -> Any:
    """16 of a group's 32 numbers, from float16 to float32."""
    at = vectors.at(base, (group, TILE * 2), (half, LANES * 2))
    return vectors.widen(at)
