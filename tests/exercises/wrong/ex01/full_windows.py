"""A layer with a window always holds a whole one, however short the conversation.

Reason: a conversation shorter than the window fills only a part of it
"""


def kv_bytes_per_sequence(config, num_tokens, *, dtype_bytes, scale_bytes=0):
    one = kv_bytes_per_token(config, dtype_bytes=dtype_bytes, scale_bytes=scale_bytes)  # noqa: F821
    kept = [window or num_tokens for window in config.sliding_windows]
    return one / config.num_layers * sum(kept)
