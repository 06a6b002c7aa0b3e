"""Forgets the scales of a quantized cache.

Reason: the scales are missing
"""


def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype_bytes
