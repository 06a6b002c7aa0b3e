"""Works the head dim out, as if H * D were always the hidden size.

Reason: head_dim is a number of its own in the config
"""


def kv_bytes_per_token(config, *, dtype_bytes, scale_bytes=0):
    head_dim = config.hidden_size // config.num_heads
    return 2 * config.num_layers * config.num_kv_heads * (head_dim * dtype_bytes + scale_bytes)
