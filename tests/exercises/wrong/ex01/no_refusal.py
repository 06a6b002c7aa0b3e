"""Starts an engine that can never hold anybody.

Reason: no block fits: an engine without blocks must not start
"""


def kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    block = int(block_size * kv_bytes_per_token(config, dtype_bytes=dtype_bytes))  # noqa: F821
    return kv_cache_memory // block
