"""Takes q out by multiplying it by 0, which leaves NaN where a sequence has no draft.

Reason: was it picked from a row that is NaN
"""

import torch

from minillm_serve.runtime.spec.accept import PADDING, Accepted


def accept(p, q, drafts, lengths, draws):
    n, (size, width) = kept(p, q, drafts, lengths, draws), drafts.shape  # noqa: F821
    rows = torch.arange(size)
    padded = torch.nn.functional.pad(q, (0, 0, 0, 1))[rows, n]
    rest = (p[rows, n] - padded * (n < lengths)[:, None]).clamp(min=0)
    weights = torch.where(rest.sum(1, keepdim=True) == 0, p[rows, n], rest)
    token_ids = torch.full((size, width + 1), PADDING)
    token_ids[:, :width] = drafts.where(torch.arange(width) < n[:, None], PADDING)
    token_ids[rows, n] = pick(weights, draws[rows, n, 1])  # noqa: F821
    return Accepted(token_ids, n)
