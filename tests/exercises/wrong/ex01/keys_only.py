"""Forgets that there is a value beside each key.

Reason: half of it is missing: a token leaves a key and a value
"""


def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    vectors = config.num_layers * config.num_kv_heads
    return vectors * (config.head_dim * dtype_bytes + scale_bytes)
