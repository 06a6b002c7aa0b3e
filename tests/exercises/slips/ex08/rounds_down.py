"""Rounds down.

Reason: all have one sign
"""

import torch


def codes_of(x, scales):
    steps = torch.where(scales > 0, scales, 1)[..., None]
    return (x.float() / steps).floor().to(torch.int8)
