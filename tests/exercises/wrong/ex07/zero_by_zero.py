"""Divides by a sum that is 0 where p and q are the same (B63).

Reason: nothing is lacking, and that was divided by its sum, 0
"""


def residual(p, q):
    rest = (p - q).clamp(min=0)
    return rest / rest.sum(-1, keepdim=True)
