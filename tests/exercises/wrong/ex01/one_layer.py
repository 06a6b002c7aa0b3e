"""Counts one layer.

Reason: this is one layer
"""


def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    return 2 * config.num_kv_heads * (config.head_dim * dtype_bytes + scale_bytes)
