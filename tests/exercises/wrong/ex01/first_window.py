"""Takes one layer's window for the whole model's.

Reason: not every layer has a window
"""


def kv_bytes_per_sequence(config, num_tokens, *, dtype_bytes, scale_bytes=0):
    one = kv_bytes_per_token(config, dtype_bytes=dtype_bytes, scale_bytes=scale_bytes)  # noqa: F821
    windows = [window for window in config.sliding_windows if window]
    return one * min(num_tokens, *windows[:1], num_tokens)
