"""Multiplies in int8.

Reason: the products wrapped round
"""

import torch


def numbers_of(codes, scales):
    return (codes.float() * scales[..., None]).to(torch.int32).to(torch.int8).float()
