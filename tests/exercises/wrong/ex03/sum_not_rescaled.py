"""Shrinks the values when a higher score comes, and forgets the sum of weights.

Reason: the sum of weights must shrink
"""
# ruff: noqa: F821


@triton.jit
def fold(scores, v, highest, total, acc):
    top = tl.maximum(highest, tl.max(scores, axis=1))
    weights = tl.exp(scores - top[:, None])
    acc = acc * tl.exp(highest - top)[:, None] + tl.dot(weights, v)
    return top, total + tl.sum(weights, axis=1), acc
