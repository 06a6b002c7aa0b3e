"""Better than rounding to the nearest: AWQ's scales and GPTQ's compensation, on one matrix.

Both look at what the matrix is multiplied by. Rounding to the nearest makes each *weight* as right
as the grid allows; what counts is the *product*.
"""

import torch
from torch import Tensor

from minillm_serve.quality.weights import Grid, Inputs

#: Powers of the channels' sizes that AWQ tries; 0 is rounding to the nearest.
POWERS = (0.0, 0.2, 0.4, 0.6, 0.8)
#: GPTQ adds this share of the diagonal's mean to it, so that it can be inverted.
DAMPING = 0.01


def activation_aware(weight: Tensor, inputs: Inputs, grid: Grid) -> Tensor:
    """AWQ (Lin et al., 2024, arXiv:2306.00978): columns that meet large inputs get finer steps.

    A column is multiplied by s before it is rounded and divided by s after it, which costs nothing:
    the division can be left to the norm (or the matrix) before. s is a power of the channel's size;
    of some powers the one whose product is nearest to the right one is taken.

    Args:
        weight: [O, I] float32.
        inputs: what it is multiplied by.
        grid: of what is kept.
    """
    best, least = weight, float("inf")
    for power in POWERS:
        scales = inputs.size.clamp(min=1e-6) ** power
        scales = scales / (scales.amax() * scales.amin()).sqrt()
        candidate = grid.round(weight * scales) / scales
        if (error := inputs.error(candidate - weight)) < least:
            best, least = candidate, error
    return best


def compensated(weight: Tensor, inputs: Inputs, grid: Grid) -> Tensor:
    """GPTQ (Frantar et al., 2023, arXiv:2210.17323): what one column lost, the next ones make up.

    Columns are rounded one by one. Each leaves an error in the product, and the columns that are
    still to come are moved so that they cancel as much of it as they can: by how much follows from
    the inverse of x x^T, of which a Cholesky factor holds all that is needed.

    Args:
        weight: [O, I] float32.
        inputs: what it is multiplied by.
        grid: of what is kept.
    """
    left = weight.clone()
    damped = inputs.products + DAMPING * inputs.products.diagonal().mean() * torch.eye(len(left.T))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    factor = torch.linalg.cholesky(inverse, upper=True)
    for start in range(0, left.shape[1], grid.group):
        end = start + grid.group
        fitted = grid.fit(left[:, start:end])  # as compensation has left them
        errors = torch.empty(len(left), end - start)
        for i in range(start, end):
            column = left[:, i].clone()
            left[:, i] = grid.nearest(column[:, None], *fitted)[:, 0]
            errors[:, i - start] = (column - left[:, i]) / factor[i, i]
            left[:, i + 1 : end] -= errors[:, i - start, None] * factor[i, i + 1 : end]
        left[:, end:] -= errors @ factor[start:end, end:]
    return left
