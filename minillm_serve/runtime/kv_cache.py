"""The KV cache: one pair of tensors a layer, cut into blocks; and their scales, if in 8 bits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.models.config import ModelConfig
from minillm_serve.runtime.kv_quantizer import KVQuantizer, as_bits, is_quantized


class KVScales(NamedTuple):
    """What the codes of one layer are multiplied by, see `kv_quantizer`.

    Attributes:
        k: [num_blocks, H_kv, P] float32.
        v: same.
    """

    k: Tensor
    v: Tensor


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of every token in the pool.

    Slot s of a layer is block s // P, row s % P. A head's rows of one block lie side by side,
    so that a kernel which works on one head reads a block in one piece.

    Attributes:
        k: N tensors [num_blocks, H_kv, P, D].
        v: N tensors of the same shape.
        has_spare: one block more is there, behind all others, which belongs to nobody: rows that
            only fill a batch up write into it.
        k_scale: where k and v hold codes, N tensors [num_blocks, H_kv, P] float32; else none.
        v_scale: same.
        quantizer: somebody's own, that makes the codes; None: the attention backend does.
    """

    k: list[Tensor]
    v: list[Tensor]
    has_spare: bool = False
    k_scale: list[Tensor] = field(default_factory=list)
    v_scale: list[Tensor] = field(default_factory=list)
    quantizer: KVQuantizer | None = None

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        spare: bool = False,
        quantizer: KVQuantizer | None = None,
    ) -> "KVCache":
        """Reserves the whole pool, filled with zeros.

        (Zeros rather than leftovers: a masked row must not be NaN, since 0 * NaN is NaN.)

        Args:
            config: of the model.
            num_blocks: blocks in the pool.
            block_size: tokens a block (P).
            dtype: of the numbers; with torch.int8 or torch.float8_e4m3fn there are scales too.
            device: where.
            spare: see `has_spare`.
            quantizer: see the class.
        """
        slots = (num_blocks + spare, config.num_kv_heads, block_size)

        def every_layer(shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
            return [_zeros(shape, dtype, device) for _ in range(config.num_layers)]

        k, v = (every_layer((*slots, config.head_dim), dtype) for _ in range(2))
        if not is_quantized(dtype):
            return cls(k, v, spare)
        k_scale, v_scale = (every_layer(slots, torch.float32) for _ in range(2))
        return cls(k, v, spare, k_scale, v_scale, quantizer)

    def scales(self, layer: int) -> KVScales | None:
        """Those of one layer, if there are any."""
        return KVScales(self.k_scale[layer], self.v_scale[layer]) if self.k_scale else None

    def copy_blocks(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copies blocks in all layers.

        Args:
            moves: pairs (from, to); no block is both, and none is written twice.
        """
        if not moves:
            return
        if self.k[0].device.type == "cuda":
            from minillm_serve.kernels.copy_blocks import copy_blocks

            for tensors in self.groups:
                copy_blocks(tensors, tensors, moves)
            return
        sources, targets = torch.tensor(moves).T
        for tensors in self.groups:
            for tensor in tensors:
                tensor[targets] = tensor[sources]

    @property
    def groups(self) -> list[list[Tensor]]:
        """All that belongs to a block and must go wherever it goes: tensors [num_blocks, ...].

        Those of one group have the same shape and dtype; the numbers come first, then their scales.
        """
        groups = [[as_bits(tensor) for tensor in (*self.k, *self.v)]]
        return [*groups, [*self.k_scale, *self.v_scale]] if self.k_scale else groups

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool, and the number of the spare block behind them, if there is one."""
        return self.k[0].shape[0] - self.has_spare

    @property
    def block_size(self) -> int:
        """Tokens a block (P)."""
        return self.k[0].shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(tensor.nbytes for tensors in self.groups for tensor in tensors)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy takes zeroed pages from the system, which are mapped when they are first written: a pool
    # costs nothing before it is used. torch writes the zeros itself.
    empty = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(empty).view(dtype).view(shape)
