"""Gives one block to whoever has no room for it.

Reason: this cannot work, and should be refused with a ValueError
"""


def kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    block = int(block_size * kv_bytes_per_token(config, dtype_bytes=dtype_bytes))  # noqa: F821
    return max(1, kv_cache_memory // block)
