"""Keys and values in 8 bits, for CPUs, in Numba: written as codes with scales, and read back.

The attention kernels turn a tile of codes into float32 first and then do what they always do: a
tile stays in the processor's nearest cache, and all query heads that share a KV head use it. The
torch reference is `minillm_serve.runtime.kv_quantizer`.

Whoever changes this file must touch those that import it: Numba's cache of compiled code looks at
the calling file alone.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from minillm_serve.kernels.cpu_math import bind, bits_of_float, float_from_bits
from numba import njit

#: What a cache holds: float32, int8 codes, or e4m3 (which numpy does not know) as uint8.
PLAIN, INT8, FP8 = 0, 1, 2
LARGEST = {INT8: np.float32(127), FP8: np.float32(448)}
#: Rows in which no number is larger become zeros.
_SMALLEST = np.float32(1e-30)
_ZERO, _ONE = np.float32(0), np.int32(1)

# e4m3 is S EEEE MMM with E biased by 7, float32 has 8 bits of E biased by 127 and 23 of M. Moved
# to where float32 has its fields, a code means 2^-120 of its number: subnormal ones, too.
_SIGN, _REST, _MOVE_SIGN, _MOVE_REST = (np.int32(x) for x in (0x80, 0x7F, 24, 20))
_UNBIAS, _BIAS = np.float32(2.0**120), np.int32(120 << 3)
# The other way, rounded to the nearest, ties to even: almost half of the lowest bit that stays is
# added, and all of it where that bit is set. Below 2^-6 steps are 2^-9 wide.
_HALF, _NORMAL, _STEPS = np.int32(0x7FFFF), np.float32(2.0**-6), np.float32(2.0**9)

#: The sums may be reordered, so that they vectorise. NaN and infinity keep their meaning.
_ANY_ORDER = {"reassoc", "nsz"}


def kind_of(dtype: np.dtype[Any]) -> int:
    """What a cache of this dtype holds."""
    return {np.dtype(np.int8): INT8, np.dtype(np.uint8): FP8}.get(dtype, PLAIN)


@cache
def make_unpack(kind: int, head_dim: int) -> Any:
    """Builds `unpack(codes, scales, start, count, numbers)`, to be called by other kernels.

    Returns:
        A function that gives rows start .. start + count - 1 of `codes` [P, D] times `scales` [P]
        as float32 [count or more, D]; either in `numbers`, which it writes, or where they lie.
    """
    body = {PLAIN: _leave, INT8: _unpack_int8, FP8: _unpack_fp8}[kind]
    return njit(bind(body, HEAD_DIM=head_dim))


#: Bound by `make_unpack` and `_writer`.
HEAD_DIM = KIND = MOST = 0
quantize: Any = None
magnitude: Any = None


def _leave(codes, scales, start, count, numbers):
    return codes[start:]


def _unpack_int8(codes, scales, start, count, numbers):
    for j in range(count):
        scale = scales[start + j]
        for d in range(HEAD_DIM):
            numbers[j, d] = np.float32(codes[start + j, d]) * scale
    return numbers


def _unpack_fp8(codes, scales, start, count, numbers):
    for j in range(count):
        scale = scales[start + j]
        for d in range(HEAD_DIM):
            code = np.int32(codes[start + j, d])
            bits = ((code & _SIGN) << _MOVE_SIGN) | ((code & _REST) << _MOVE_REST)
            numbers[j, d] = float_from_bits(bits) * _UNBIAS * scale
    return numbers


def kv_write_codes(
    k: np.ndarray,
    v: np.ndarray,
    slot_mapping: np.ndarray,
    k_cache: np.ndarray,
    v_cache: np.ndarray,
    k_scale: np.ndarray,
    v_scale: np.ndarray,
) -> None:
    """Stores new keys and values as codes.

    Args:
        k: [T, H_kv, D] float32.
        v: [T, H_kv, D] float32.
        slot_mapping: [T] int64.
        k_cache: [num_blocks, H_kv, P, D] int8, or uint8 that means e4m3; written.
        v_cache: same.
        k_scale: [num_blocks, H_kv, P] float32, written.
        v_scale: same.
    """
    write = _writer(kind_of(k_cache.dtype))
    write(k, v, slot_mapping, k_cache, v_cache, k_scale, v_scale)


@cache
def _writer(kind: int) -> Callable[..., None]:
    body = {INT8: _quantize_int8, FP8: _quantize_fp8}[kind]
    magnitude = njit(fastmath=_ANY_ORDER)(_top)
    quantize = njit(bind(body, magnitude=magnitude, MOST=LARGEST[kind]))
    write: Callable[..., None] = njit(cache=True)(bind(_write, KIND=kind, quantize=quantize))
    return write


def _write(k, v, slot_mapping, k_cache, v_cache, k_scale, v_scale):
    size = k_cache.shape[2]
    for row in range(len(slot_mapping)):
        block, offset = slot_mapping[row] // size, slot_mapping[row] % size
        for head in range(k.shape[1]):
            k_scale[block, head, offset] = quantize(k[row, head], k_cache[block, head, offset])
            v_scale[block, head, offset] = quantize(v[row, head], v_cache[block, head, offset])


def _top(x):
    """The largest magnitude in a row; NaN if any of it is not finite."""
    highest, spoilt = _ZERO, _ZERO
    for d in range(len(x)):
        highest = max(highest, abs(x[d]))
        spoilt += x[d] * _ZERO
    return highest + spoilt


def _quantize_int8(x, codes):
    top = magnitude(x)
    if not top > _SMALLEST:
        codes[:] = 0
        return top * _ZERO
    step = MOST / top
    for d in range(len(x)):
        codes[d] = np.int8(np.rint(x[d] * step))
    return top / MOST


def _quantize_fp8(x, codes):
    top = magnitude(x)
    if not top > _SMALLEST:
        codes[:] = 0
        return top * _ZERO
    step = MOST / top
    for d in range(len(x)):
        y = x[d] * step
        bits = bits_of_float(y)
        sign = (bits >> _MOVE_SIGN) & _SIGN
        if abs(y) < _NORMAL:
            code = np.int32(np.rint(abs(y) * _STEPS))
        else:
            low = (bits >> _MOVE_REST) & _ONE
            code = (((bits & np.int32(0x7FFFFFFF)) + _HALF + low) >> _MOVE_REST) - _BIAS
        codes[d] = np.uint8(sign | code)
    return top / MOST
