"""Caches every query head's key and value, as without GQA.

Reason: these are the query heads
"""


def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    return 2 * config.num_layers * config.num_heads * (config.head_dim * dtype_bytes + scale_bytes)
