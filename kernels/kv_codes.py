"""Device functions for keys and values in 8 bits: codes are made here, and become numbers again.

A number is code * scale, with a scale for each token and head; reference:
`minillm_serve.runtime.kv_quantizer`. Codes are int8, or e4m3, which comes as uint8: its bits are
moved about with integers. So it also works where there is no such type (A100), where it means
something else (MI300), and in the interpreter, whose own conversions are wrong.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

#: The dtypes that a cache of codes may have, and the largest code of each.
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
_INT8, _FP8 = tl.constexpr(127.0), tl.constexpr(448.0)
#: Rows in which no number is larger become zeros.
_SMALLEST = tl.constexpr(1e-30)
#: fp32 has no bits for fractions from here on: adding it rounds to a whole number, ties to even.
_WHOLE = tl.constexpr(12582912.0)


def as_codes(cache: Tensor) -> Tensor:
    """A cache as the kernels take it: float8 as bare bytes."""
    return cache.view(torch.uint8) if cache.dtype == torch.float8_e4m3fn else cache


@triton.jit
def to_compute(x, COMPUTE: tl.constexpr):
    """What was loaded from a cache, in the type to compute in; of e4m3, a 256th (see `code_unit`).

    A code's fields, moved to where fp16 has its own, mean 2^-8 of its number: fp16's exponent is
    biased by 15, e4m3's by 7. Subnormal numbers stay right.
    """
    if x.dtype == tl.uint8:
        bits = x.to(tl.uint16)
        x = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True)
    return x.to(COMPUTE)


@triton.jit
def load_scales(
    scale_ptr, code_ptr, ids, start, end, stride_block, P: tl.constexpr, TILE: tl.constexpr
):
    """What the codes of a tile are to be multiplied by: [TILE] fp32, 0 from `end` on."""
    positions = start + tl.arange(0, TILE)
    scales = tl.load(
        scale_ptr + ids * stride_block + positions % P, mask=positions < end, other=0.0
    )
    if code_ptr.dtype.element_ty == tl.uint8:
        scales *= 256.0
    return scales


@triton.jit
def row_steps(top, spoilt, cache_ptr):
    """Scales of rows, and what their numbers are multiplied by to become codes.

    Args:
        top: the largest magnitude of each.
        spoilt: the sum of each row's numbers times 0; NaN if any is not finite.
        cache_ptr: where the codes go.
    """
    largest = _INT8
    if cache_ptr.dtype.element_ty == tl.uint8:
        largest = _FP8
    is_finite = spoilt == 0.0
    wanted = is_finite & (top > _SMALLEST)
    top = tl.where(wanted, top, 1.0)
    scales = tl.where(wanted, tl.div_rn(top, top * 0.0 + largest), 0.0)
    steps = tl.where(wanted, tl.div_rn(top * 0.0 + largest, top), 0.0)
    return tl.where(is_finite, scales, float("nan")), steps


@triton.jit
def encode(x, steps, cache_ptr):
    """Codes of rows of fp32, for a cache."""
    x = tl.where(steps > 0.0, x * steps, 0.0)
    if cache_ptr.dtype.element_ty == tl.uint8:
        bits = x.to(tl.int32, bitcast=True)
        # Rounded to 3 bits of mantissa; below 2^-6 all steps are 2^-9 wide.
        normal = (((bits & 0x7FFFFFFF) + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 960
        small = ((tl.abs(x) * 512.0 + _WHOLE) - _WHOLE).to(tl.int32)
        code = tl.where(tl.abs(x) < 0.015625, small, normal)
        codes = (code | ((bits >> 24) & 0x80)).to(tl.uint8)
    else:
        codes = ((x + _WHOLE) - _WHOLE).to(tl.int8)
    return codes
