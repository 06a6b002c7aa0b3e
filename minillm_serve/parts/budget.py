"""The `kv_budget` slot."""

from minillm_serve.models.config import ModelConfig
from minillm_serve.parts.part import Part
from minillm_serve.runtime.sizing import KVBudget, kv_block_bytes, num_kv_blocks


def fit_kv_budget(part: Part | None) -> KVBudget:
    """Somebody's budget, whose answers must fit into the memory; ours if there is none.

    Raises:
        PartError: it is no function with the protocol's parameters.
    """
    if part is None:
        return num_kv_blocks
    part.expect(callable(part.value), f"is of type {type(part.value).__name__}: give a function")
    part.check_signature(part.value, KVBudget.__call__, part.slot)

    def checked(
        config: ModelConfig, *, kv_cache_memory: int, block_size: int, dtype_bytes: float
    ) -> int:
        one = kv_block_bytes(config, block_size=block_size, dtype_bytes=dtype_bytes)
        allowed = (ValueError,) if one > kv_cache_memory else ()
        with part.blame("", *allowed):
            blocks = part.value(
                config,
                kv_cache_memory=kv_cache_memory,
                block_size=block_size,
                dtype_bytes=dtype_bytes,
            )
        whole = isinstance(blocks, int) and not isinstance(blocks, bool)
        part.expect(whole, f"returned {blocks!r}, expected a whole number of blocks")
        part.expect(blocks >= 1, f"returned {blocks} blocks, expected at least 1")
        part.expect(
            blocks * one <= kv_cache_memory,
            f"returned {blocks} blocks, which take {blocks * one} bytes ({one} each), but "
            f"kv_cache_memory is {kv_cache_memory} bytes",
        )
        return int(blocks)

    return checked
