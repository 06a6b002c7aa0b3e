"""Gives the tokens that fit.

Reason: these are tokens: a block holds block_size of them
"""


def kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    one = kv_bytes_per_token(config, dtype_bytes=dtype_bytes)  # noqa: F821
    if kv_cache_memory < block_size * one:
        raise ValueError(f"{kv_cache_memory} bytes, but a block takes {block_size * one} bytes")
    return int(kv_cache_memory // one)
