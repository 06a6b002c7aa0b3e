"""Lets the conversion to integers round, which cuts off.

Reason: numbers are cut off towards 0
"""

import torch


def codes_of(x, scales):
    steps = torch.where(scales > 0, scales, 1)[..., None]
    return (x.float() / steps).to(torch.int8)
