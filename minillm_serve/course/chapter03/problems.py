"""Small paged problems with a float64 answer, for the chapter and its tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from minillm_serve.runtime.attention.conformance import attend, make_problem
from minillm_serve.runtime.attention.naive import NaiveAttention


@dataclass(frozen=True)
class DecodeProblem:
    """One new row for each of some sequences.

    Attributes:
        q: [S, H, D].
        k_cache: [num_blocks, H_kv, P, D]; slots that hold no token are NaN.
        v_cache: same.
        block_tables: [S, W] int32.
        seq_lens: [S] int32.
        answer: [S, H, D] float64.
    """

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    answer: Tensor

    @property
    def scale(self) -> float:
        """1 / sqrt(D)."""
        return float(self.q.shape[-1] ** -0.5)

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """What every decode kernel takes."""
        return self.q, self.k_cache, self.v_cache, self.block_tables, self.seq_lens

    def tables(self) -> tuple[tuple[int, ...], ...]:
        """Block ids of each sequence, without padding."""
        size = self.k_cache.shape[2]
        rows = zip(self.block_tables.tolist(), self.seq_lens.tolist(), strict=True)
        return tuple(tuple(row[: -(-length // size)]) for row, length in rows)

    def error(self, out: Tensor) -> float:
        """Largest difference from the answer; NaN where there is one in `out`."""
        return float((out.double().cpu() - self.answer).abs().max())


def decode_problem(
    lengths: Sequence[int],
    *,
    heads: int = 6,
    kv_heads: int = 2,
    dim: int = 16,
    block_size: int = 4,
    seed: int = 0,
    device: str = "cpu",
) -> DecodeProblem:
    """Random float32 queries, keys and values, in blocks that lie in any order.

    Args:
        lengths: tokens of each sequence, the new one included.
        heads: H.
        kv_heads: H_kv.
        dim: D.
        block_size: P.
        seed: of the draws.
        device: of the tensors.
    """
    found = make_problem(
        tuple((1, length) for length in lengths),
        device=torch.device("cpu"),
        dtype=torch.float64,
        heads=heads,
        kv_heads=kv_heads,
        dim=dim,
        block_size=block_size,
        leftover=math.nan,
        seed=seed,
    )
    # The answer is that of the float32 inputs: rounding those is nobody's error.
    q, k_cache, v_cache = (x.float() for x in (found.q, found.k_cache, found.v_cache))
    exact = replace(found, q=q.double(), k_cache=k_cache.double(), v_cache=v_cache.double())
    answer = attend(NaiveAttention(), exact)
    tables, lens = found.metadata.block_tables, found.metadata.seq_lens
    q, k_cache, v_cache, tables, lens = (x.to(device) for x in (q, k_cache, v_cache, tables, lens))
    return DecodeProblem(q, k_cache, v_cache, tables, lens, answer)
