"""Random paged attention problems, and their dense solution in float64."""

import math
from dataclasses import dataclass

import torch

from minillm_serve.runtime.attention.base import AttentionMetadata
from minillm_serve.runtime.attention.cascade import SharedPrefix


@dataclass
class Problem:
    """A step: `lengths` tokens in the cache, the last `queries` of each sequence are its rows."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    metadata: AttentionMetadata
    keys: list[torch.Tensor]  # [L, H_kv, D] of each sequence
    values: list[torch.Tensor]

    def to(self, dtype: torch.dtype) -> "Problem":
        return Problem(
            self.q.to(dtype),
            self.k_cache.to(dtype),
            self.v_cache.to(dtype),
            self.metadata,
            self.keys,
            self.values,
        )


def make_problem(
    lengths: list[int],
    queries: list[int],
    prefixes: tuple[SharedPrefix, ...] = (),
    *,
    heads: int = 4,
    kv_heads: int = 2,
    dim: int = 16,
    block_size: int = 4,
    seed: int = 0,
    poison: float = math.nan,
) -> Problem:
    """A pool full of `poison`, in which only the sequences' own slots hold numbers (float64).

    Members of `prefixes` begin with the same blocks.
    """
    draw = torch.Generator().manual_seed(seed)
    widths = [-(-length // block_size) for length in lengths]
    num_blocks = sum(widths) + 3
    shape = (num_blocks, kv_heads, block_size, dim)
    k_cache, v_cache = (torch.full(shape, poison, dtype=torch.float64) for _ in range(2))
    free = torch.randperm(num_blocks, generator=draw).tolist()
    tables = torch.zeros(len(lengths), max(widths), dtype=torch.int32)
    keys, values, slots = [], [], []
    for s, length in enumerate(lengths):
        table = [free.pop() for _ in range(widths[s])]
        k, v = (
            torch.randn(length, kv_heads, dim, dtype=torch.float64, generator=draw)
            for _ in range(2)
        )
        for prefix in prefixes:
            if s in prefix.sequences[1:]:
                first = prefix.sequences[0]
                table[: prefix.num_blocks] = tables[first, : prefix.num_blocks].tolist()
                k[: prefix.num_tokens] = keys[first][: prefix.num_tokens]
                v[: prefix.num_tokens] = values[first][: prefix.num_tokens]
        tables[s, : widths[s]] = torch.tensor(table)
        for position in range(length):
            block, row = table[position // block_size], position % block_size
            k_cache[block, :, row], v_cache[block, :, row] = k[position], v[position]
        first = length - queries[s]
        slots += [
            table[p // block_size] * block_size + p % block_size for p in range(first, length)
        ]
        keys.append(k)
        values.append(v)
    starts = torch.tensor([0, *queries]).cumsum(0).int()
    metadata = AttentionMetadata(
        query_start_loc=starts,
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        block_tables=tables,
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        max_query_len=max(queries),
        max_seq_len=max(lengths),
        shared_prefixes=prefixes,
    )
    q = torch.randn(sum(queries), heads, dim, dtype=torch.float64, generator=draw)
    return Problem(q, k_cache, v_cache, metadata, keys, values)


def solve(problem: Problem, *, scale: float, window: int | None = None) -> torch.Tensor:
    """Dense attention, one sequence at a time, in float64: [T, H, D]."""
    out = []
    starts = problem.metadata.query_start_loc.tolist()
    for s, (k, v) in enumerate(zip(problem.keys, problem.values, strict=True)):
        q = problem.q[starts[s] : starts[s + 1]].double()
        rows, length, group = len(q), len(k), q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,lhd->hql", q, k) * scale
        position = torch.arange(length - rows, length)[:, None]
        visible = torch.arange(length) <= position
        if window is not None:
            visible &= torch.arange(length) > position - window
        weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
        out.append(torch.einsum("hql,lhd->qhd", weights, v))
    return torch.cat(out)
