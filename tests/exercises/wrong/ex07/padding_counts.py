"""Tests all K, whatever the length.

Reason: it looks at what lies beyond the drafts of a sequence
"""


def kept(p, q, drafts, lengths, draws):
    index = drafts.clamp(min=0)[..., None]
    p_draft, q_draft = p[:, :-1].gather(2, index)[..., 0], q.gather(2, index)[..., 0]
    passed = draws[:, :-1, 0] * q_draft < p_draft
    return passed.long().cumprod(1).sum(1)
