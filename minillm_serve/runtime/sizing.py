"""How many KV blocks the engine may have."""

import os

import torch

from minillm_serve.models.config import ModelConfig

GIB = 2**30
#: On a CPU the pool shares memory with everything else: a quarter of what is free, at most 4 GiB.
CPU_SHARE, CPU_LIMIT = 0.25, 4 * GIB
#: On a GPU the weights are loaded already; the rest is left for activations.
GPU_SHARE = 0.85


def default_kv_memory(device: torch.device) -> int:
    """Bytes that the KV cache may take on a device if nobody says otherwise."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(GPU_SHARE * free)
    return min(CPU_LIMIT, int(CPU_SHARE * _free_host_memory()))


def num_kv_blocks(
    config: ModelConfig, *, kv_cache_memory: int, block_size: int, dtype: torch.dtype
) -> int:
    """Whole blocks that fit into `kv_cache_memory` bytes.

    Raises:
        ValueError: not even one does.
    """
    block_bytes = int(block_size * config.kv_bytes_per_token(dtype.itemsize))
    if kv_cache_memory < block_bytes:
        raise ValueError(
            f"kv_cache_memory={kv_cache_memory} bytes holds no block: one block of {block_size} "
            f"tokens takes {block_bytes} bytes; raise kv_cache_memory or lower block_size"
        )
    return kv_cache_memory // block_bytes


def _free_host_memory() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows or macOS
        return 8 * GIB
