"""Keeps a zero point to itself, and adds it when it dequantizes: the kernels know nothing of it.

Reason: dequantize gives something else than code * scale
"""

import torch


class Quantizer:
    dtype = torch.int8

    def quantize(self, x):
        x = x.float()
        middle = (x.amax(-1, keepdim=True) + x.amin(-1, keepdim=True)) / 2
        self.middle = middle
        scales = scales_of(x - middle)  # noqa: F821
        return codes_of(x - middle, scales), scales  # noqa: F821

    def dequantize(self, codes, scales):
        return numbers_of(codes, scales) + self.middle[: len(codes)]  # noqa: F821
