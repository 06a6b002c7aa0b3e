"""<= for <: a draw of 0 keeps a draft that the model never says.

Reason: (< is not <=)
"""

import torch


def kept(p, q, drafts, lengths, draws):
    inside = torch.arange(drafts.shape[1]) < lengths[:, None]
    index = drafts.where(inside, 0)[..., None]
    p_draft, q_draft = p[:, :-1].gather(2, index)[..., 0], q.gather(2, index)[..., 0]
    passed = inside & (draws[:, :-1, 0] * q_draft <= p_draft)
    return passed.long().cumprod(1).sum(1)
