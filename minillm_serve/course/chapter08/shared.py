"""A block that is copied: with its scales, and without them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.models.config import ModelConfig
from minillm_serve.runtime.attention.base import store_codes
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import Int8Quantizer


@dataclass(frozen=True)
class Copied:
    """A block of keys, and what is read of its copy.

    Attributes:
        original: [H_kv, P, D], as read from the block itself.
        copy: as read from the copy.
    """

    original: Tensor
    copy: Tensor

    @property
    def error(self) -> float:
        """Largest difference, as a share of the largest number."""
        return float((self.copy - self.original).abs().max() / self.original.abs().max())


def copy_block(config: ModelConfig, *, scales_too: bool) -> Copied:
    """Writes two blocks of keys, quiet ones and loud ones, and copies the first over the second.

    Args:
        config: of the model whose cache it is; one layer of it is looked at.
        scales_too: as the engine does it; else the codes alone.
    """
    block_size, cpu = 16, torch.device("cpu")
    cache = KVCache.allocate(
        config, num_blocks=2, block_size=block_size, dtype=torch.int8, device=cpu
    )
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2 * block_size, config.num_kv_heads, config.head_dim, generator=draw)
    x[block_size:] *= 8
    scales = cache.scales(0)
    assert scales is not None  # it holds codes
    slots = torch.arange(2 * block_size)
    store_codes(x, x, cache.k[0], cache.v[0], slots, scales, Int8Quantizer())
    before = _read(cache, 0)
    if scales_too:
        cache.copy_blocks([(0, 1)])
    else:
        for tensor in cache.groups[0]:
            tensor[1] = tensor[0]
    return Copied(before, _read(cache, 1))


def _read(cache: KVCache, block: int) -> Tensor:
    return Int8Quantizer().dequantize(cache.k[0][block], cache.k_scale[0][block])
