"""Refuses, but does not say what to change.

Reason: the refusal does not say
"""


def kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    block = int(block_size * kv_bytes_per_token(config, dtype_bytes=dtype_bytes))  # noqa: F821
    if kv_cache_memory < block:
        raise ValueError("too little memory")
    return kv_cache_memory // block
