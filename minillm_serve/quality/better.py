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
#: Columns after which the errors of all of them are passed on, in one product.
TOGETHER = 64


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
    the inverse of x x^T, of which a Cholesky factor holds all that is needed. Those that meet the
    largest inputs come first, while there are others to make up for them. Each group keeps the grid
    that fits it as it was.

    Args:
        weight: [O, I] float32.
        inputs: what it is multiplied by.
        grid: of what is kept.
    """
    order = inputs.products.diagonal().argsort(descending=True)
    fitted = grid.fit(weight.reshape(len(weight), -1, grid.group))
    steps, starts = (one[..., 0].repeat_interleave(grid.group, 1)[:, order] for one in fitted)
    left, factor = weight[:, order], _inverse_factor(inputs.products[order][:, order])
    for start in range(0, left.shape[1], TOGETHER):
        end = min(start + TOGETHER, left.shape[1])
        errors = torch.empty(len(left), end - start)
        for i in range(start, end):
            column = left[:, i].clone()
            left[:, i] = grid.nearest(column, steps[:, i], starts[:, i])
            errors[:, i - start] = (column - left[:, i]) / factor[i, i]
            left[:, i + 1 : end] -= errors[:, i - start, None] * factor[i, i + 1 : end]
        left[:, end:] -= errors @ factor[start:end, end:]
    return left[:, order.argsort()]


def _inverse_factor(products: Tensor) -> Tensor:
    """The upper Cholesky factor of the inverse, damped."""
    damping = DAMPING * products.diagonal().mean() * torch.eye(len(products))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(products + damping))
    return torch.linalg.cholesky(inverse, upper=True)
