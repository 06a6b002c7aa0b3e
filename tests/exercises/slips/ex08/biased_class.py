"""Rounds down in the class, by a code of its own.

Reason: errors lean to one side
"""

import torch


class Quantizer:
    dtype = torch.int8

    def quantize(self, x):
        scales = scales_of(x)  # noqa: F821
        steps = torch.where(scales > 0, scales, 1)[..., None]
        return (x.float() / steps - 0.2).round().clamp(-127, 127).to(torch.int8), scales

    def dequantize(self, codes, scales):
        return numbers_of(codes, scales)  # noqa: F821
