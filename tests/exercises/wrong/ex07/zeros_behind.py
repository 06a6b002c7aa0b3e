"""Fills up with 0, which is a token.

Reason: 0 is a token
"""

import torch

from minillm_serve.runtime.spec.accept import Accepted


def accept(p, q, drafts, lengths, draws):
    n, (size, width) = kept(p, q, drafts, lengths, draws), drafts.shape  # noqa: F821
    rows = torch.arange(size)
    weights, refused = p[rows, n], n < lengths
    weights[refused] = residual(weights[refused], q[refused, n[refused]])  # noqa: F821
    token_ids = torch.zeros(size, width + 1, dtype=torch.int64)
    token_ids[:, :width] = drafts.where(torch.arange(width) < n[:, None], 0)
    token_ids[rows, n] = pick(weights, draws[rows, n, 1])  # noqa: F821
    return Accepted(token_ids, n)
