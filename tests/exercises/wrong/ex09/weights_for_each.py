"""Reads the weights for each sequence by itself.

Reason: the weights are read once a step, whatever the batch
"""


def step_time(batch, context, weights, kv, bandwidth, flops, peak):
    return max(batch * (weights + context * kv) / bandwidth, batch * flops / peak)
