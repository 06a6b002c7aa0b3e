"""Counts all drafts that pass, those behind a refusal as well.

Reason: it keeps drafts behind one that was not kept
"""

import torch


def kept(p, q, drafts, lengths, draws):
    inside = torch.arange(drafts.shape[1]) < lengths[:, None]
    index = drafts.where(inside, 0)[..., None]
    p_draft, q_draft = p[:, :-1].gather(2, index)[..., 0], q.gather(2, index)[..., 0]
    return (inside & (draws[:, :-1, 0] * q_draft < p_draft)).sum(1)
