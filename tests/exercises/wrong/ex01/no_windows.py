"""Every layer keeps everything.

Reason: this ignores the windows
"""


def kv_bytes_per_sequence(config, num_tokens, *, dtype_bytes, scale_bytes=0):
    one = kv_bytes_per_token(config, dtype_bytes=dtype_bytes, scale_bytes=scale_bytes)  # noqa: F821
    return num_tokens * one
