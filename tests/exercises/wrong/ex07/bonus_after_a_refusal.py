"""Picks from the row behind the last draft, kept or not.

Reason: That row follows tokens which are not in the text
"""

import torch

from minillm_serve.runtime.spec.accept import PADDING, Accepted


def accept(p, q, drafts, lengths, draws):
    n, (size, width) = kept(p, q, drafts, lengths, draws), drafts.shape  # noqa: F821
    rows = torch.arange(size)
    weights = p[rows, lengths]
    token_ids = torch.full((size, width + 1), PADDING)
    token_ids[:, :width] = drafts.where(torch.arange(width) < n[:, None], PADDING)
    token_ids[rows, n] = pick(weights, draws[rows, n, 1])  # noqa: F821
    return Accepted(token_ids, n)
