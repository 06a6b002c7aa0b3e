"""The KV cache: one pair of tensors a layer, cut into blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minillm_serve.models.config import ModelConfig


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
    """

    k: list[Tensor]
    v: list[Tensor]
    has_spare: bool = False

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
    ) -> "KVCache":
        """Reserves the whole pool, filled with zeros.

        (Zeros rather than leftovers: a masked row must not be NaN, since 0 * NaN is NaN.)
        """
        shape = (num_blocks + spare, config.num_kv_heads, block_size, config.head_dim)
        k, v = ([_zeros(shape, dtype, device) for _ in range(config.num_layers)] for _ in range(2))
        return cls(k, v, spare)

    def copy_blocks(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copies blocks in all layers.

        Args:
            moves: pairs (from, to); no block is both, and none is written twice.
        """
        if not moves:
            return
        tensors = [*self.k, *self.v]
        if self.k[0].device.type == "cuda":
            from minillm_serve.kernels.copy_blocks import copy_blocks

            copy_blocks(tensors, tensors, moves)
            return
        sources, targets = torch.tensor(moves).T
        for tensor in tensors:
            tensor[targets] = tensor[sources]

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
        return sum(tensor.nbytes for tensor in (*self.k, *self.v))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy takes zeroed pages from the system, which are mapped when they are first written: a pool
    # costs nothing before it is used. torch writes the zeros itself.
    empty = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(empty).view(dtype).view(shape)
