"""The KV pools that answers to ex03 are tried on: a few sequences amid others, and NaN."""

from __future__ import annotations

import math
import mmap
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from minillm_serve.course.exercises.exercise import Case

#: Blocks before and behind the pool that belong to nobody: a read that misses lands here.
GUARD = 2
#: Elements between two blocks of the far pool: block 8 begins 2^31 elements in.
FAR_STRIDE = 2**28
FAR_BLOCK = 8


@dataclass(frozen=True)
class Pool:
    """Inputs of one launch.

    Attributes:
        q: [S, H, D] float32.
        k_cache: [num_blocks, H_kv, P, D] float32; NaN wherever no token of the launch lies.
        v_cache: same.
        tables: blocks of each sequence.
        lengths: tokens of each sequence.
    """

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    tables: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]

    @property
    def block_tables(self) -> Tensor:
        """[S, W] int32, padded with 0."""
        width = max(map(len, self.tables))
        padded = [[*table, *[0] * (width - len(table))] for table in self.tables]
        return torch.tensor(padded, dtype=torch.int32)

    @property
    def seq_lens(self) -> Tensor:
        """[S] int32."""
        return torch.tensor(self.lengths, dtype=torch.int32)

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """What the answer is called with, besides the scale."""
        return self.q, self.k_cache, self.v_cache, self.block_tables, self.seq_lens

    def allowed(self) -> dict[int, int]:
        """Block -> how many of its slots hold tokens."""
        size = self.k_cache.shape[2]
        return {
            block: min(length - index * size, size)
            for table, length in zip(self.tables, self.lengths, strict=True)
            for index, block in enumerate(table)
        }


def make_pool(case: Case) -> Pool:
    """The same pool for the same case, in the learner's process and in the grader's."""
    draw, size = random.Random(case["seed"]), case["block_size"]
    lengths = tuple(case["lengths"])
    widths = [-(-length // size) for length in lengths]
    num_blocks = sum(widths) + 3
    order = list(range(num_blocks))
    draw.shuffle(order)
    tables = tuple(tuple(order.pop() for _ in range(width)) for width in widths)

    torch_draw = torch.Generator().manual_seed(case["seed"])
    shape = (num_blocks + 2 * GUARD, case["kv_heads"], size, case["dim"])
    caches = [torch.full(shape, math.nan) for _ in range(2)]
    k_cache, v_cache = (cache[GUARD:-GUARD] for cache in caches)
    for table, length in zip(tables, lengths, strict=True):
        for index, block in enumerate(table):
            kept = min(length - index * size, size)
            new = torch.randn(2, case["kv_heads"], kept, case["dim"], generator=torch_draw)
            k_cache[block, :, :kept], v_cache[block, :, :kept] = new
    q = torch.randn(len(lengths), case["heads"], case["dim"], generator=torch_draw)
    return Pool(q * case.get("loud", 1.0), k_cache, v_cache, tables, lengths)


def make_scores(case: Case) -> tuple[Tensor, Tensor]:
    """Scores [tiles, rows, P] and values [tiles, P, D]."""
    draw = torch.Generator().manual_seed(case["seed"])
    shape = (case["tiles"], case["rows"], case["block_size"])
    scores = torch.randn(shape, generator=draw) * case["size"]
    scores += case["rise"] * torch.arange(case["tiles"])[:, None, None]
    if case["empty"]:
        scores[-1, :, 1:] = -torch.inf
    return scores, torch.randn(shape[0], shape[2], case["dim"], generator=draw)


def far_view(cache: Tensor, num_blocks: int = FAR_BLOCK + 1) -> Tensor:
    """A copy of a small cache in address space of over 4 GiB, of which only what is used exists.

    Args:
        cache: [n, H_kv, P, D], at most `num_blocks` blocks; becomes the last n of the copy.
        num_blocks: of the copy, `FAR_STRIDE` elements apart.

    Returns:
        [num_blocks, H_kv, P, D] float16.

    Raises:
        OSError: the system hands out no such address space.
    """
    elements = (num_blocks - 1) * FAR_STRIDE + cache[0].numel()
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    room = mmap.mmap(-1, 2 * elements, flags=flags)
    strides = (FAR_STRIDE, *cache.stride()[1:])
    far = torch.frombuffer(room, dtype=torch.float16).as_strided(
        (num_blocks, *cache.shape[1:]), strides
    )
    far[-len(cache) :] = cache
    return far
