"""How many KV blocks the engine may have."""

from pathlib import Path

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


def check_fits(
    config: ModelConfig,
    *,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Refuses a pool that this machine has no memory for.

    (A CPU's would be granted, since memory is mapped when it is written, and the system would kill
    the process in the middle of an answer.)

    Raises:
        ValueError: saying how much is wanted and how much is free.
    """
    wanted = int(num_blocks * block_size * config.kv_bytes_per_token(dtype.itemsize))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_host_memory()
    if wanted > free:
        raise ValueError(
            f"num_blocks={num_blocks} blocks of {block_size} tokens take {wanted / GIB:.1f} GiB, "
            f"but {free / GIB:.1f} GiB are free: lower num_blocks or kv_cache_memory"
        )


def _free_host_memory() -> int:
    """Bytes that could be had, caches of the file system included."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:  # not on Windows or macOS
        pass
    return 8 * GIB
