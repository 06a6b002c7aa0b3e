"""Codes are counted from the row's lowest number.

Reason: a zero point that nobody keeps
"""

import torch


def codes_of(x, scales):
    steps = torch.where(scales > 0, scales, 1)[..., None]
    x = x.float()
    return ((x - x.amin(-1, keepdim=True)) / steps).round().to(torch.int8)
