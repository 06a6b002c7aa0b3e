"""Accepts by the drafter's own probability (B59).

Reason: the surer the drafter is, the more often it
"""

import torch


def kept(p, q, drafts, lengths, draws):
    inside = torch.arange(drafts.shape[1]) < lengths[:, None]
    index = drafts.where(inside, 0)[..., None]
    passed = inside & (draws[:, :-1, 0] < q.gather(2, index)[..., 0])
    return passed.long().cumprod(1).sum(1)
