"""Keys and values in 8 bits: codes, and one scale for each token and head.

    number = code * scale

Scales of their own keep a token with large keys from spoiling the others', and a new token from
changing what is stored of those before it: a row is quantized once, when it is written, and every
step reads the same numbers ever after. (Keys have channels that are large in all tokens; KIVI, Liu
et al., 2024, arXiv:2402.02750, has scales along those instead, which must wait until a group of
tokens is full. In 8 bits that is not needed.)

A step attends to what the cache holds, its own tokens included. So how a prompt is cut into chunks,
who is preempted or who finds a prefix in the cache changes nothing.
"""

from typing import Final, Protocol

import torch
from torch import Tensor

#: What `kv_cache_dtype` may be; "auto" is the dtype that the model computes in.
KV_CACHE_DTYPES: Final = {"auto": None, "int8": torch.int8, "fp8": torch.float8_e4m3fn}
#: The largest code of each kind.
LARGEST: Final = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
#: Rows in which no number is larger become zeros: LARGEST / number must stay finite.
SMALLEST: Final = 1e-30
SCALE_BYTES: Final = 4


class KVQuantizer(Protocol):
    """Turns keys or values into codes with scales; `Int8Quantizer` and `Fp8Quantizer` are ours.

    Attributes:
        dtype: of the codes, torch.int8 or torch.float8_e4m3fn.
    """

    dtype: torch.dtype

    def quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and scales of a step's keys, or of its values.

        Args:
            x: [T, H_kv, D] float32, float16, bfloat16 or float64.

        Returns:
            codes [T, H_kv, D] in `dtype`, and scales [T, H_kv] float32, one a token and head. What
            is read back is code * scale.
        """
        ...

    def dequantize(self, codes: Tensor, scales: Tensor) -> Tensor:
        """What is read back: codes [..., D] times scales [...], in float32.

        (The attention kernels multiply for themselves, and so do not ask.)
        """
        ...


class _Symmetric:
    """Scales by a row's largest magnitude, so that this gets the largest code, and 0 stays 0.

    A row of zeros has the scale 0. A row with a NaN or an infinity has the scale NaN: all of it is
    NaN when it is read, as it would have been in the scores.
    """

    dtype: torch.dtype

    def quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `KVQuantizer`."""
        x = x.float()
        top = x.abs().amax(-1)
        # A tensor: torch would take a number over a tensor for its reciprocal times the number.
        largest = torch.full_like(top, LARGEST[self.dtype])
        finite, wanted = top.isfinite(), top > SMALLEST
        scales = torch.where(wanted, top / largest, 0).masked_fill(~finite, torch.nan)
        steps = torch.where(wanted & finite, largest / top, 0)
        codes = torch.where(finite[..., None], x * steps[..., None], 0)
        return self._round(codes), scales

    def dequantize(self, codes: Tensor, scales: Tensor) -> Tensor:
        """See `KVQuantizer`."""
        return dequantize(codes, scales, torch.float32)

    def _round(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)  # float8 rounds to the nearest, ties to even


class Int8Quantizer(_Symmetric):
    """Whole numbers from -127 to 127: a row's largest magnitude / 127 is a step."""

    dtype = torch.int8

    def _round(self, x: Tensor) -> Tensor:
        return x.round().to(self.dtype)  # ties to even, so that errors have no sign of their own


class Fp8Quantizer(_Symmetric):
    """e4m3: 4 bits of exponent and 3 of mantissa (Micikevicius et al., 2022, arXiv:2209.05433).

    A number is off by up to 1/16 of itself, where int8 is off by 1/254 of the row's largest.
    """

    dtype = torch.float8_e4m3fn


#: Ours, by the dtype of their codes.
QUANTIZERS: Final[dict[torch.dtype, KVQuantizer]] = {
    quantizer.dtype: quantizer for quantizer in (Int8Quantizer(), Fp8Quantizer())
}


def choose_kv_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """Turns `kv_cache_dtype` into the dtype of the cache.

    Args:
        name: a key of `KV_CACHE_DTYPES`.
        dtype: that the model computes in.

    Raises:
        ValueError: it is unknown.
    """
    if name not in KV_CACHE_DTYPES:
        raise ValueError(
            f"kv_cache_dtype={name!r} is unknown: choose from {', '.join(KV_CACHE_DTYPES)}"
        )
    return KV_CACHE_DTYPES[name] or dtype


def is_quantized(kv_dtype: torch.dtype) -> bool:
    """Whether a cache of this dtype has scales."""
    return kv_dtype in QUANTIZERS


def bytes_per_number(kv_dtype: torch.dtype, head_dim: int) -> float:
    """Bytes that the cache takes for each number, its share of a scale included."""
    return kv_dtype.itemsize + (SCALE_BYTES / head_dim if is_quantized(kv_dtype) else 0)


def dequantize(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """codes [..., D] times scales [...], worked out in float32 or wider, in `dtype`."""
    wide = torch.promote_types(dtype, torch.float32)
    return (codes.to(wide) * scales.to(wide)[..., None]).to(dtype)


def as_bits(codes: Tensor) -> Tensor:
    """Numbers of 8 bits as int8, whatever they mean: torch moves float8 about less readily."""
    return codes.view(torch.int8) if codes.dtype.itemsize == 1 else codes
