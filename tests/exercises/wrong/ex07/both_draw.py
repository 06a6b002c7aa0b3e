"""The chance that model and drafter would draw the same token.

Reason: how likely p and q are to draw the same token
"""


def overlap(p, q):
    return (p * q).sum(-1)
