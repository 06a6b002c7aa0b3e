"""Quantized weights as a CPU reads them, and products with them in integers.

The codes of 32 outputs lie together, four columns at a time (`kernels.cpu_int_linear`). The other
factor is rounded to 8 bits in groups of 32 columns, so all of a product but its last few steps is
done in integers, four times as many at once as float32. What one row gives is the same to the last
bit whatever rows stand beside it.

The same code reads weights at the speed of memory for one row and is twice as fast as `F.linear` in
float32 for many (`minillm-serve bench linear`; the table is in `benchmarks/README.md`), so there is
one way of computing for all numbers of rows. torch's own were left out: `quantized.linear_dynamic`
has one step for a whole batch, so that rows depend on each other, `_int_mm` wants one a row, which
costs the embedded model 4 % of perplexity, and `_weight_int8pack_mm` loses to float32 beyond a few
rows.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import minillm_serve.kernels.cpu_quantize_rows as cpu
from minillm_serve.kernels.cpu_int_linear import TILE, int_linear
from minillm_serve.models.quantized import (
    GROUP,
    QuantizedWeight,
    column_codes,
    pack_columns,
)

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class TiledWeight(NamedTuple):
    """A weight ``[O, I]`` in tiles of 32 outputs, padded with zeros.

    Attributes:
        codes: uint8 ``[O / 32, I / 4, 32, 4]``, or with 4 bits ``[O / 32, I / 8, 32, 4]``.
        steps: ``[O / 32, G, 32]``; float32 if G is 1, else float16.
        starts: like steps; with 8 bits of no elements.
        shape: (O, I).
    """

    codes: Tensor
    steps: Tensor
    starts: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, weight: QuantizedWeight) -> "TiledWeight":
        """Lays a weight out in tiles."""
        codes = weight.codes if weight.bits == 8 else column_codes(weight)
        codes = _padded(codes, 1, GROUP)
        if weight.bits == 4:
            low, high = codes.view(len(codes), -1, 2, 4).unbind(2)
            codes = (low | high << 4).flatten(1)
        starts = weight.starts
        return cls(
            _tiles(codes, 4),
            _tiles(weight.steps, 1).squeeze(3),
            weight.steps.new_empty(0, 0, 0) if starts is None else _tiles(starts, 1).squeeze(3),
            weight.shape,
        )

    @property
    def bits(self) -> int:
        """4 or 8."""
        return 4 if self.starts.numel() else 8

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return self.codes.nbytes + self.steps.nbytes + self.starts.nbytes

    @property
    def by_group(self) -> bool:
        """Whether steps belong to groups of columns, not to whole rows."""
        return self.steps.dtype == torch.float16

    def rows(self, index: Tensor) -> QuantizedWeight:
        """Some of the rows: int64 ``[R]`` -> a weight ``[R, I]``, row by row."""
        tile, lane = index // TILE, index % TILE
        codes = self.codes[tile, :, lane].flatten(1)
        steps = self.steps[tile, :, lane]
        if self.bits == 8:
            return QuantizedWeight(codes[:, : self.shape[1]].contiguous(), steps)
        fours = codes.view(len(codes), -1, 4)
        codes = torch.stack([fours & 15, fours >> 4], dim=2).flatten(1)
        return QuantizedWeight(pack_columns(codes), steps, self.starts[tile, :, lane])

    def plain(self) -> QuantizedWeight:
        """The whole weight, row by row."""
        return self.rows(torch.arange(self.shape[0]))

    def expand(self) -> Tensor:
        """The weight, float32 ``[O, I]``."""
        return self.plain().expand()

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Of codes, steps and starts, as the kernels take them."""
        return self.codes.data_ptr(), self.steps.data_ptr(), self.starts.data_ptr()

    def linear(self, x: Tensor) -> Tensor:
        """``x W^T``: float32 ``[R, I] -> [R, O]``; x is rounded to 8 bits."""
        width = self.codes.shape[1] * TILE // self.bits
        if width > x.shape[1]:
            x = torch.nn.functional.pad(x, (0, width - x.shape[1]))
        out = torch.empty(len(x), self.shape[0])
        quantized = quantize_rows(x)
        int_linear(self.bits, self.by_group)(*self.addresses, *quantized, out.numpy())
        return out


def quantize_rows(x: Tensor) -> Arrays:
    """Rounds rows to signed bytes: float32 ``[R, I]`` -> codes, steps and sums of the codes.

    Returns:
        codes int8 ``[R, I]``, steps float32 ``[R, I / 32]``, sums int32 ``[R, I / 32]``.
    """
    rows, groups = len(x), x.shape[1] // GROUP
    codes = np.empty((rows, x.shape[1]), np.int8)
    steps, sums = np.empty((rows, groups), np.float32), np.empty((rows, groups), np.int32)
    cpu.quantize_rows(x.contiguous().numpy(), codes, steps, sums)
    return codes, steps, sums


def _tiles(rows: Tensor, size: int) -> Tensor:
    """[O, N] -> [O / 32, N / size, 32, size], padded with zeros."""
    rows = _padded(rows, 0, TILE)
    return rows.view(len(rows) // TILE, TILE, -1, size).transpose(1, 2).contiguous()


def _padded(matrix: Tensor, dimension: int, multiple: int) -> Tensor:
    missing = -matrix.shape[dimension] % multiple
    if not missing:
        return matrix
    shape = list(matrix.shape)
    shape[dimension] = missing
    return torch.cat([matrix, matrix.new_zeros(shape)], dim=dimension)
