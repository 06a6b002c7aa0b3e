"""One scale for the whole token.

Reason: one scale a token is too few
"""


def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    vectors = 2 * config.num_layers * config.num_kv_heads
    return vectors * config.head_dim * dtype_bytes + scale_bytes
