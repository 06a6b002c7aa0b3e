"""Knows one roof only.

Reason: these are the bytes alone, and here the arithmetic takes longer
"""


def step_time(batch, context, weights, kv, bandwidth, flops, peak):
    return (weights + batch * context * kv) / bandwidth
