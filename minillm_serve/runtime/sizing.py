"""How many KV blocks the engine may have."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from minillm_serve.models.config import ModelConfig
from minillm_serve.runtime.kv_quantizer import bytes_per_number

GIB = 2**30
#: On a CPU the pool shares memory with everything else: a quarter of what is free, at most 4 GiB.
CPU_SHARE, CPU_LIMIT = 0.25, 4 * GIB
#: On a GPU everything but this share of the whole memory is used: CUDA graphs, fragmentation, and
#: whatever else needs a little.
GPU_RESERVE = 0.06


class KVBudget(Protocol):
    """Decides how many KV blocks an engine gets; `num_kv_blocks` is ours."""

    def __call__(
        self, config: ModelConfig, *, kv_cache_memory: int, block_size: int, dtype_bytes: float
    ) -> int:
        """Blocks that fit into the memory.

        Args:
            config: of the model.
            kv_cache_memory: bytes for keys and values of all blocks.
            block_size: tokens a block (P).
            dtype_bytes: bytes of one cached number: 4 for float32. In a quantized cache its share
                of a scale is among them, 1 + 4 / D.

        Returns:
            At least 1.

        Raises:
            ValueError: not even one fits.
        """
        ...


class MemoryMeter(Protocol):
    """Tells how much memory a device has; `CudaMeter` asks a GPU."""

    @property
    def total(self) -> int:
        """Bytes there are."""
        ...

    def measure(self, step: Callable[[], None]) -> tuple[int, int]:
        """Runs a step: bytes that it needed at its peak, and bytes that are free after it."""
        ...


class CudaMeter:
    """Measures on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def total(self) -> int:
        """See `MemoryMeter`."""
        return torch.cuda.mem_get_info(self.device)[1]

    def measure(self, step: Callable[[], None]) -> tuple[int, int]:
        """See `MemoryMeter`. What torch keeps for later use is given back first."""
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        step()
        peak = torch.cuda.max_memory_allocated(self.device) - before
        torch.cuda.empty_cache()
        return peak, torch.cuda.mem_get_info(self.device)[0]


def default_kv_memory(device: torch.device, largest_step: Callable[[], None]) -> int:
    """Bytes that the KV cache may take on a device if nobody says otherwise.

    Args:
        device: with the weights on it.
        largest_step: runs a step as large as any; on a GPU it is measured what that takes.
    """
    if device.type == "cuda":
        return spare_memory(CudaMeter(device), largest_step)
    return min(CPU_LIMIT, int(CPU_SHARE * _free_host_memory()))


def spare_memory(meter: MemoryMeter, largest_step: Callable[[], None]) -> int:
    """Bytes that stay free beside the largest step and a reserve.

    Raises:
        ValueError: nothing does.
    """
    peak, free = meter.measure(largest_step)
    spare = free - peak - int(GPU_RESERVE * meter.total)
    if spare <= 0:
        raise ValueError(
            f"no memory is left for the KV cache: {free / GIB:.1f} GiB are free beside the "
            f"weights, a step takes up to {peak / GIB:.1f} GiB and "
            f"{GPU_RESERVE * meter.total / GIB:.1f} GiB are kept in reserve; "
            "lower max_num_batched_tokens or max_num_seqs"
        )
    return spare


def kv_block_bytes(config: ModelConfig, *, block_size: int, dtype_bytes: float) -> int:
    """Bytes of one block, keys and values of all layers together, and their scales."""
    return round(block_size * config.kv_bytes_per_token(dtype_bytes))


def num_kv_blocks(
    config: ModelConfig, *, kv_cache_memory: int, block_size: int, dtype_bytes: float
) -> int:
    """Whole blocks that fit into `kv_cache_memory` bytes.

    Raises:
        ValueError: not even one does.
    """
    block_bytes = kv_block_bytes(config, block_size=block_size, dtype_bytes=dtype_bytes)
    if kv_cache_memory < block_bytes:
        raise ValueError(
            f"kv_cache_memory={kv_cache_memory} bytes holds no block: one block of {block_size} "
            f"tokens takes {block_bytes} bytes; raise kv_cache_memory or lower block_size"
        )
    return kv_cache_memory // block_bytes


def share_kv_memory(
    memory: int,
    config: ModelConfig,
    drafter: ModelConfig,
    *,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
) -> int:
    """Bytes that the model's KV gets if a drafter has as many blocks beside it.

    Args:
        memory: bytes for both.
        config: of the model.
        drafter: of the drafter, whose KV is never quantized: there is little of it.
        dtype: that both compute in.
        kv_dtype: of the model's KV.
    """
    own = config.kv_bytes_per_token(bytes_per_number(kv_dtype, config.head_dim))
    other = drafter.kv_bytes_per_token(dtype.itemsize)
    return int(memory * own / (own + other))


def check_fits(num_blocks: int, *, block_size: int, block_bytes: int, device: torch.device) -> None:
    """Refuses a pool that this machine has no memory for.

    (A CPU's would be granted, since memory is mapped when it is written, and the system would kill
    the process in the middle of an answer.)

    Args:
        num_blocks: blocks in the pool.
        block_size: tokens a block (P).
        block_bytes: of a block in all caches, a drafter's among them.
        device: where they go.

    Raises:
        ValueError: saying how much is wanted and how much is free.
    """
    wanted = num_blocks * block_bytes
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_host_memory()
    if wanted > free:
        raise ValueError(
            f"num_blocks={num_blocks} blocks of {block_size} tokens take {wanted / GIB:.1f} GiB, "
            f"but {free / GIB:.1f} GiB are free: lower num_blocks or kv_cache_memory"
        )


def check_swap_space(swap_space: int) -> None:
    """Refuses swap space that the host has no memory for.

    Raises:
        ValueError: saying how much is wanted and how much is free.
    """
    free = _free_host_memory()
    if swap_space > free:
        raise ValueError(
            f"swap_space={swap_space} bytes are {swap_space / GIB:.1f} GiB, but {free / GIB:.1f} "
            "GiB of host memory are free: lower it"
        )


def check_weights_fit(wanted: float, *, kept_as: str, device: torch.device) -> None:
    """Refuses a model whose weights this machine has no memory for, before they are read.

    Args:
        wanted: bytes of them.
        kept_as: what they are kept in.
        device: where they go.

    Raises:
        ValueError: saying how much is wanted and how much is free.
    """
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_host_memory()
    if wanted > free:
        raise ValueError(
            f"the model's weights take {wanted / GIB:.1f} GiB as {kept_as}, but "
            f"{free / GIB:.1f} GiB are free: choose a smaller model, a dtype of fewer bytes, or "
            "end what else takes memory"
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
