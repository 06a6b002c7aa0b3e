"""Takes e^score as it is.

Reason: subtract the highest score first
"""
# ruff: noqa: F821


@triton.jit
def fold(scores, v, highest, total, acc):
    weights = tl.exp(scores)
    return tl.zeros_like(highest), total + tl.sum(weights, axis=1), acc + tl.dot(weights, v)
