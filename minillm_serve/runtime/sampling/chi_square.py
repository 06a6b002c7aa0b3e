"""Whether draws follow a distribution: Pearson's chi-square test."""

import torch
from torch import Tensor


def p_value(counts: Tensor, probs: Tensor) -> float:
    """How likely right draws would be to differ from a distribution by as much as these, or more.

    The sum over all outcomes of (counted - expected)^2 / expected follows the chi-square
    distribution with one degree of freedom less than there are possible outcomes (Pearson, 1900),
    if each is expected a few times at least.

    Args:
        counts: [N], how often each outcome was drawn.
        probs: [N], how likely it is; they sum to 1.

    Returns:
        From 0 to 1; 0 if something impossible was drawn.
    """
    probs, counts = probs.double(), counts.double()
    possible = probs > 0
    if counts[~possible].sum() > 0:
        return 0.0
    expected = probs[possible] * counts.sum()
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum().double() - 1
    # The upper tail of the distribution is a regularised incomplete gamma function.
    return float(torch.special.gammaincc(freedom / 2, statistic / 2)) if freedom > 0 else 1.0
