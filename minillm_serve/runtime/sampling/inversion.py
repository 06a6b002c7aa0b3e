"""Draws by inverting the cumulative distribution."""

import torch
from torch import Tensor


def invert(weights: Tensor, draws: Tensor) -> Tensor:
    """One token a row: the first at which the running sum of weights passes a share of their total.

    A token of weight 0 is never taken, whatever the draw and however sums are rounded.

    Args:
        weights: [R, V], any float dtype, at least 0; rows need not sum to 1.
        draws: [R] float64, from 0 to below 1.

    Returns:
        [R] int64. Where weights are no numbers, or all 0, some id of the vocabulary.
    """
    # float64: in float32 the sum over a large vocabulary would lose the unlikely tokens.
    cumulative = weights.double().cumsum(dim=-1)
    # A draw is 1 - 2^-53 at most: however it is rounded, the product stays below the total.
    share = draws.unsqueeze(1) * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, share, right=True).squeeze(1)
    return found.clamp_(max=weights.shape[-1] - 1)
