"""Reads one cache, as if the context were everybody's.

Reason: each sequence has a cache of its own: B of them are read
"""


def step_time(batch, context, weights, kv, bandwidth, flops, peak):
    return max((weights + context * kv) / bandwidth, batch * flops / peak)
