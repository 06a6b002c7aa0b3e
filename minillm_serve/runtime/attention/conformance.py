"""Whether a backend computes attention: a few tiny steps, compared with the naive backend."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from minillm_serve.runtime.attention.base import AttentionBackend, AttentionMetadata
from minillm_serve.runtime.attention.cascade import SharedPrefix
from minillm_serve.runtime.attention.naive import NaiveAttention
from minillm_serve.runtime.attention.registry import Needs
from minillm_serve.runtime.kv_cache import KVScales
from minillm_serve.runtime.kv_quantizer import QUANTIZERS

HEADS, KV_HEADS, DIM, BLOCK_SIZE = 6, 2, 16, 4
#: Rows of each sequence -> its length: one row each, as in decoding, and slices of all kinds.
DECODE = ((1, 1), (1, 3), (1, 4), (1, 5), (1, 19))
MIXED = ((7, 7), (1, 9), (3, 18), (1, 1), (4, 4))
#: Sequences that begin with the same blocks, as prefix caching lets them; the first of each group
#: has one token of its own.
SHARED = ((1, 13), (1, 9), (1, 19), (1, 3), (1, 14), (1, 11))
PREFIXES = (SharedPrefix((0, 2, 4), 3, BLOCK_SIZE), SharedPrefix((1, 5), 2, BLOCK_SIZE))
SHARED_MIXED = ((5, 9), (1, 13), (1, 30), (2, 7))
#: Kind, rows and lengths, shared prefixes.
STEPS = (
    ("decode step", DECODE, ()),
    ("mixed step", MIXED, ()),
    ("decode step with shared prefixes", SHARED, PREFIXES),
    ("mixed step with a shared prefix", SHARED_MIXED, (SharedPrefix((1, 2), 3, BLOCK_SIZE),)),
)
WINDOW = 6
#: What lies in slots that are nobody's business: should any of it be read, the result shows it.
LEFTOVER = 50.0
#: Largest difference that rounding explains. (Triton multiplies float32 as TF32 on a GPU.)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3, torch.float16: 1e-2, torch.bfloat16: 6e-2}


@dataclass(frozen=True, slots=True)
class Problem:
    """A step to attend to.

    Attributes:
        q: [T, H, D].
        k_cache: [num_blocks, H_kv, P, D].
        v_cache: same shape.
        metadata: whose rows they are.
        scales: of the caches, if they hold codes.
    """

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    metadata: AttentionMetadata
    scales: KVScales | None = None


def make_problem(
    step: tuple[tuple[int, int], ...],
    prefixes: tuple[SharedPrefix, ...] = (),
    *,
    device: torch.device,
    dtype: torch.dtype,
    kv_dtype: torch.dtype | None = None,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
    dim: int = DIM,
    block_size: int = BLOCK_SIZE,
    leftover: float = LEFTOVER,
    seed: int = 0,
) -> Problem:
    """Random queries, keys and values in blocks that lie in any order.

    Args:
        step: rows and length of each sequence.
        prefixes: whose block tables begin alike.
        device: of all tensors.
        dtype: of queries, keys and values.
        kv_dtype: of the caches, if it is another: codes with scales.
        heads: H.
        kv_heads: H_kv.
        dim: D.
        block_size: P.
        leftover: what fills the slots that belong to no sequence.
        seed: of the draws, which are the same on every device.
    """
    draw = torch.Generator().manual_seed(seed)
    widths = [-(-length // block_size) for _, length in step]
    num_blocks = sum(widths) + 2
    shape = (2, num_blocks, kv_heads, block_size, dim)
    caches = torch.full(shape, leftover, dtype=torch.float64)
    free = torch.randperm(num_blocks, generator=draw).tolist()
    tables = torch.zeros(len(step), max(widths), dtype=torch.int32)
    slots: list[int] = []
    for s, (rows, length) in enumerate(step):
        tables[s, : widths[s]] = torch.tensor([free.pop() for _ in range(widths[s])])
        for prefix in prefixes:
            if s in prefix.sequences[1:]:
                shared = slice(0, prefix.num_blocks)
                tables[s, shared] = tables[prefix.sequences[0], shared]
        position = torch.arange(length)
        block, row = tables[s, position // block_size].long(), position % block_size
        new = torch.randn(length, 2, kv_heads, dim, dtype=torch.float64, generator=draw)
        caches[:, block, :, row] = new
        slots += (block * block_size + row)[length - rows :].tolist()
    counts = [rows for rows, _ in step]
    lengths = [length for _, length in step]
    metadata = AttentionMetadata(
        query_start_loc=torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=device),
        seq_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        slot_mapping=torch.tensor(slots, dtype=torch.int64, device=device),
        max_query_len=max(counts),
        max_seq_len=max(lengths),
        shared_prefixes=prefixes,
    )
    q = torch.randn(sum(counts), heads, dim, dtype=torch.float64, generator=draw)
    q = q.to(device, dtype)
    if kv_dtype is None or kv_dtype == dtype:
        k_cache, v_cache = caches.to(device, dtype)
        return Problem(q, k_cache, v_cache, metadata)
    coded = [QUANTIZERS[kv_dtype].quantize(cache.to(device)) for cache in caches]
    (k_codes, k_scale), (v_codes, v_scale) = coded
    return Problem(q, k_codes, v_codes, metadata, KVScales(k_scale, v_scale))


def attend(backend: AttentionBackend, problem: Problem, *, window: int | None = None) -> Tensor:
    """[T, H, D] of a backend."""
    more = {} if problem.scales is None else {"scales": problem.scales}
    return backend.run(
        problem.q,
        problem.k_cache,
        problem.v_cache,
        problem.metadata,
        backend.plan(problem.metadata),
        scale=problem.q.shape[-1] ** -0.5,
        window=window,
        **more,
    )


def find_difference(backend: AttentionBackend, needs: Needs) -> str | None:
    """Compares a backend with the naive one on steps with ragged lengths and grouped heads.

    Args:
        backend: which.
        needs: what it is to do.

    Returns:
        The first index that differs, with both values, as the end of a sentence; None if none does.
    """
    for kind, step, prefixes in STEPS:
        for size in (None, WINDOW) if needs.window else (None,):
            # One each: a backend that writes where it should not must not mislead the other.
            problem, own = (
                make_problem(
                    step,
                    prefixes,
                    device=needs.device,
                    dtype=needs.dtype,
                    kv_dtype=needs.kv_dtype,
                )
                for _ in range(2)
            )
            want = attend(NaiveAttention(), problem, window=size)
            got = attend(backend, own, window=size)
            where = first_difference(got, want, tolerance=TOLERANCE[needs.dtype])
            if where is not None:
                around = f" with a window of {size}" if size else ""
                return f"{_describe(problem, got, want, where)}, in a {kind}{around}"
    return None


def first_difference(got: Tensor, want: Tensor, *, tolerance: float) -> tuple[int, ...] | None:
    """Index of the first value that is further off than `tolerance`, or not a number."""
    off = ~((got.double() - want.double()).abs() <= tolerance)
    return tuple(off.nonzero()[0].tolist()) if off.any() else None


def _describe(problem: Problem, got: Tensor, want: Tensor, where: tuple[int, ...]) -> str:
    row, head, _ = where
    starts, lengths = problem.metadata.query_start_loc.tolist(), problem.metadata.seq_lens.tolist()
    sequence = next(s for s in range(len(lengths)) if row < starts[s + 1])
    position = lengths[sequence] - (starts[sequence + 1] - row)
    group = problem.q.shape[1] // problem.k_cache.shape[1]
    return (
        f"out{list(where)} is {got[where].item():.6g}, expected {want[where].item():.6g}: "
        f"position {position} of sequence {sequence}, whose length is {lengths[sequence]}, "
        f"query head {head} on KV head {head // group}, blocks of {problem.k_cache.shape[2]}"
    )
