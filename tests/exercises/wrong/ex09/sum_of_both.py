"""Moves first and computes afterwards.

Reason: bytes and arithmetic are done at the same time: the slower one counts, not their sum
"""


def step_time(batch, context, weights, kv, bandwidth, flops, peak):
    return (weights + batch * context * kv) / bandwidth + batch * flops / peak
