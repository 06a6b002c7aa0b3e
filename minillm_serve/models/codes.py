"""Weights that were quantized once, found again in their float32 values.

A checkpoint that was quantized and then expanded to float32, as the embedded model's was, has in
each group of 32 neighbours in a row no more than 16 (or 255) different values, one step apart:
``start + step * code``. Keeping the codes instead loses nothing, not a bit, and a CPU has a fourth
of the bytes to read. It is no quantization: where a single weight would change, nothing is coded.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from minillm_serve.kernels.cpu_coded_linear import GROUP, coded_linear

#: Rows of a weight that tell whether it is worth looking at the others.
SAMPLE = 8
#: Rows that are looked at together, so that little memory is taken.
CHUNK = 4096


class CodedWeight(NamedTuple):
    """A weight ``[O, I]`` as codes, in groups of 32 columns: G = I / 32.

    Attributes:
        codes: uint8 ``[O, G, 32]`` (8 bits) or ``[O, G, 16]`` (4 bits: byte i holds the group's
            column i in its low half and column 16 + i in its high half).
        steps: float32 ``[O, G]``.
        starts: float32 ``[O, G]``.
    """

    codes: Tensor
    steps: Tensor
    starts: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return sum(tensor.nbytes for tensor in self)

    def expand(self) -> Tensor:
        """The weight, float32 ``[O, I]``."""
        codes = self.codes
        if codes.shape[2] < GROUP:
            codes = torch.cat([codes & 15, codes >> 4], dim=2)
        return _values(codes, self.steps, self.starts).flatten(1)

    def linear(self, x: Tensor) -> Tensor:
        """``x W^T``: float32 ``[R, I] -> [R, O]``; rows do not influence each other."""
        out = torch.empty(len(x), len(self.codes))
        arrays = [tensor.numpy() for tensor in (*self, x.contiguous(), out)]
        coded_linear(*arrays)
        return out


def find_codes(weight: Tensor) -> CodedWeight | None:
    """The codes of a float32 weight ``[O, I]``; None if none give exactly its values."""
    if weight.dtype != torch.float32 or weight.shape[1] % GROUP:
        return None
    for bits in (4, 8):
        if _encode(weight[:SAMPLE], bits) is not None:
            parts = [_encode(rows, bits) for rows in weight.split(CHUNK)]
            found = [part for part in parts if part is not None]
            if len(found) == len(parts):
                return CodedWeight(*(torch.cat(column) for column in zip(*found, strict=True)))
    return None


def _encode(weight: Tensor, bits: int) -> CodedWeight | None:
    groups = weight.reshape(len(weight), -1, GROUP)
    if bits == 4:
        # As in GGUF's Q4_1: the lowest value has code 0, the highest 15, and steps are float16.
        starts = groups.amin(2)
        steps = ((groups.amax(2) - starts) / 15).half().float()
    else:
        # As in GGUF's Q8_0: codes -127 .. 127 around zero, here counted from -128.
        steps = groups.abs().amax(2) / 127
        starts = -128 * steps
    spread = torch.where(steps > 0, steps, 1)
    codes = ((groups - starts[..., None]) / spread[..., None]).round_()
    codes = codes.clamp_(0, 2**bits - 1).to(torch.uint8)
    if not torch.equal(_values(codes, steps, starts), groups):
        return None
    if bits == 4:
        codes = codes[..., : GROUP // 2] | codes[..., GROUP // 2 :] << 4
    return CodedWeight(codes, steps, starts)


def _values(codes: Tensor, steps: Tensor, starts: Tensor) -> Tensor:
    # Code times step is exact in float32 (8 and 11 bits), so this rounds once, as the kernel does.
    return codes * steps[..., None] + starts[..., None]
