"""Divides a row of zeros by its scale, 0 (B124).

Reason: a row of zeros makes NaN
"""

import torch


def codes_of(x, scales):
    return (x.float() / scales[..., None]).round().to(torch.int8)
