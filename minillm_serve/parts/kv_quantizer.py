"""The `kv_quantizer` slot."""

from typing import Any

import torch
from torch import Tensor

from minillm_serve.parts.part import Part
from minillm_serve.runtime.kv_conformance import find_quantizer_fault
from minillm_serve.runtime.kv_quantizer import KVQuantizer


def fit_kv_quantizer(part: Part | None, kv_dtype: torch.dtype | None) -> KVQuantizer | None:
    """Somebody's quantizer, watched; None if the attention backend is to do it, by our rule.

    Args:
        part: what was given.
        kv_dtype: of the cache.

    Raises:
        PartError: it lacks something of the protocol, or what it stores is not what it was given.
    """
    if part is None:
        return None
    watched = WatchedQuantizer(part)
    part.expect(
        watched.dtype == kv_dtype,
        f"has dtype {watched.dtype}, but kv_cache_dtype asks for {kv_dtype}",
    )
    with part.trial("a round trip"), torch.inference_mode():
        fault = find_quantizer_fault(watched)
    part.expect(fault is None, f"is wrong: it {fault}")
    return watched


class WatchedQuantizer:
    """A quantizer whose failures, and results of another form, name the part that it is.

    Raises:
        PartError: from every method.
    """

    def __init__(self, part: Part) -> None:
        part.check_class()
        part.check_signature(part.value, lambda: None, "__init__")
        with part.blame("__init__"):
            self._quantizer = part.value()
        part.check_methods(self._quantizer, KVQuantizer)
        part.expect(hasattr(self._quantizer, "dtype"), "has no dtype")
        self._part = part
        self.dtype: torch.dtype = self._quantizer.dtype

    def quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `KVQuantizer`."""
        with self._part.blame("quantize"):
            answer = self._quantizer.quantize(x)
        is_pair = isinstance(answer, tuple) and len(answer) == 2
        self._part.expect(
            is_pair and all(isinstance(one, Tensor) for one in answer),
            f"returned a {type(answer).__name__} from quantize, expected (codes, scales)",
        )
        codes, scales = answer
        self._check("codes", codes, x.shape, self.dtype)
        self._check("scales", scales, x.shape[:-1], torch.float32)
        return codes, scales

    def dequantize(self, codes: Tensor, scales: Tensor) -> Tensor:
        """See `KVQuantizer`."""
        with self._part.blame("dequantize"):
            answer: Any = self._quantizer.dequantize(codes, scales)
        right = isinstance(answer, Tensor)
        self._part.expect(right, f"returned a {type(answer).__name__} from dequantize")
        self._check("numbers", answer, codes.shape, torch.float32)
        return answer

    def _check(self, what: str, got: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
        self._part.expect(
            got.shape == shape and got.dtype == dtype,
            f"returned {what} of shape {list(got.shape)} and {got.dtype}, expected {list(shape)} "
            f"and {dtype}",
        )
