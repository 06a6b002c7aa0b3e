"""Adds a token only where a draft was refused.

Reason: it adds no token
"""

import torch

from minillm_serve.runtime.spec.accept import PADDING, Accepted


def accept(p, q, drafts, lengths, draws):
    n, (size, width) = kept(p, q, drafts, lengths, draws), drafts.shape  # noqa: F821
    rows = torch.arange(size)
    weights, refused = p[rows, n], n < lengths
    weights[refused] = residual(weights[refused], q[refused, n[refused]])  # noqa: F821
    token_ids = torch.full((size, width + 1), PADDING)
    token_ids[:, :width] = drafts.where(torch.arange(width) < n[:, None], PADDING)
    token_ids[rows, n] = pick(weights, draws[rows, n, 1])  # noqa: F821
    token_ids[rows[~refused], n[~refused]] = PADDING
    return Accepted(token_ids, n)
