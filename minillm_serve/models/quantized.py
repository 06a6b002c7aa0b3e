"""Weights in 8 or 4 bits: what they are, in torch. This is the reference of every kernel on them.

``int8``: signed numbers, one step an output channel; zero stays zero, and the largest magnitude of
a channel is 127 steps. ``int4``: groups of 32 neighbours with a step and a start of their own, from
the group's lowest value to its highest, as in GGUF's Q4_1. The start costs half a bit a weight and
is worth it: on the embedded model, steps around zero (Q4_0) raise perplexity by 26 % more.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from minillm_serve.models.functional import on_gpu, triton_kernels

#: Columns that share a step and a start, where they do not belong to a whole row.
GROUP = 32
#: The code of zero with 8 bits: codes are signed numbers, counted from -128.
ZERO = 128


class QuantizedWeight(NamedTuple):
    """A weight ``[O, I]``, row by row; G is 1, or I / 32.

    Attributes:
        codes: uint8 ``[O, I]`` (8 bits) or ``[O, I / 2]`` (4 bits: byte 16 g + i holds column
            32 g + i in its low half and column 32 g + 16 + i in its high half).
        steps: ``[O, G]``; float32 if G is 1, else float16.
        starts: like steps, the values of code 0; None with 8 bits, whose code of zero is 128.
    """

    codes: Tensor
    steps: Tensor
    starts: Tensor | None = None

    @property
    def bits(self) -> int:
        """4 or 8."""
        return 8 if self.starts is None else 4

    @property
    def shape(self) -> tuple[int, int]:
        """(O, I)."""
        return self.codes.shape[0], self.codes.shape[1] * 8 // self.bits

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return sum(tensor.nbytes for tensor in self if tensor is not None)

    def expand(self) -> Tensor:
        """The weight, float32 ``[O, I]``."""
        codes = column_codes(self) if self.bits == 4 else self.codes
        groups = codes.view(len(codes), self.steps.shape[1], -1)
        steps = self.steps.float()[..., None]
        if self.starts is None:
            return ((groups.float() - ZERO) * steps).flatten(1)
        return (groups * steps + self.starts.float()[..., None]).flatten(1)

    def rows(self, index: Tensor) -> "QuantizedWeight":
        """Some of the rows: int64 ``[R]`` -> a weight ``[R, I]``."""
        return self._each(lambda part: part[index])

    def to(self, device: torch.device) -> "QuantizedWeight":
        """The same on a device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "QuantizedWeight":
        codes, steps, starts = self
        return QuantizedWeight(
            change(codes), change(steps), None if starts is None else change(starts)
        )

    def linear(self, x: Tensor) -> Tensor:
        """``x W^T``: ``[R, I] -> [R, O]`` in x's dtype; rows do not influence each other."""
        if on_gpu(x) and (kernels := triton_kernels("quantized_linear")) is not None:
            product: Tensor = kernels.quantized_linear(x, *self)
            return product
        return F.linear(x.float(), self.expand()).to(x.dtype)


def column_codes(weight: QuantizedWeight) -> Tensor:
    """The codes of a weight of 4 bits, a byte a column: ``[O, I]``."""
    halves = weight.codes.view(len(weight.codes), -1, GROUP // 2)
    return torch.cat([halves & 15, halves >> 4], dim=2).flatten(1)


def pack_columns(codes: Tensor) -> Tensor:
    """The inverse of `column_codes`: ``[O, I] -> [O, I / 2]``."""
    low, high = codes.view(len(codes), -1, 2, GROUP // 2).unbind(2)
    return (low | high << 4).flatten(1)


def quantize(weight: Tensor, scheme: str) -> QuantizedWeight:
    """Rounds a weight ``[O, I]`` to the nearest codes.

    Args:
        weight: any float dtype.
        scheme: ``"int8"`` or ``"int4"``. Rows that are no whole number of groups get 8 bits in
            either case.

    Raises:
        ValueError: a value is not finite, or with 4 bits beyond float16.
    """
    weight = weight.float()
    if scheme == "int8" or weight.shape[1] % GROUP:
        found = _by_channel(weight)
    else:
        found = _by_group(weight)
    if not all(part is None or part.isfinite().all() for part in (found.steps, found.starts)):
        raise ValueError("a weight has values that are not finite, or too large for its steps")
    return found


def join(parts: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """The rows of several weights of one layout, one after the other."""
    starts = [part.starts for part in parts if part.starts is not None]
    return QuantizedWeight(
        torch.cat([part.codes for part in parts]),
        torch.cat([part.steps for part in parts]),
        torch.cat(starts) if starts else None,
    )


def _by_channel(weight: Tensor) -> QuantizedWeight:
    steps = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / torch.where(steps > 0, steps, 1)).round_().add_(ZERO)
    return QuantizedWeight(codes.nan_to_num_(0).clamp_(0, 255).to(torch.uint8), steps)


def _by_group(weight: Tensor) -> QuantizedWeight:
    groups = weight.reshape(len(weight), -1, GROUP)
    starts = groups.amin(2).half()
    steps = ((groups.amax(2) - starts.float()) / 15).half()
    spread = torch.where(steps > 0, steps.float(), 1)[..., None]
    codes = ((groups - starts.float()[..., None]) / spread).round_().nan_to_num_(0).clamp_(0, 15)
    return QuantizedWeight(pack_columns(codes.to(torch.uint8).flatten(1)), steps, starts)
