"""Counts on windows that the engine's pool does not use: it would promise memory twice.

Reason: our engine's pool keeps every token in every layer
"""


def kv_budget(config, *, kv_cache_memory, block_size, dtype_bytes):
    one = int(kv_bytes_per_sequence(config, block_size, dtype_bytes=dtype_bytes))  # noqa: F821
    if kv_cache_memory < one:
        raise ValueError(f"{kv_cache_memory} bytes, but a block takes {one} bytes")
    return kv_cache_memory // one
