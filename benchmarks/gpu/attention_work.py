"""Attention kernels at work, beside torch's own attention or beside each other."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from minillm_serve.kernels.attention_reference import attend_pages, gather
from minillm_serve.kernels.cascade_decode import cascade_decode, sequences_per_tile
from minillm_serve.kernels.paged_decode import paged_decode
from minillm_serve.kernels.paged_prefill import paged_prefill
from torch import Tensor

from benchmarks.gpu.case import Work
from minillm_serve.runtime.attention.cascade import SharedPrefix, member_tiles
from minillm_serve.runtime.kv_quantizer import (
    KV_CACHE_DTYPES,
    QUANTIZERS,
    bytes_per_number,
    dequantize,
)

Peers = Mapping[str, Callable[[], Any]]


def decode(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    lengths: Sequence[int],
    heads: int = 32,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
    window: int | None = None,
    spare_blocks: int = 3,
) -> Work:
    """One new token for each of some sequences.

    `spare_blocks` in front of all others move the sequences' blocks to the end of the pool.
    """
    cache, tables = make_pool(
        device, dtype, lengths, kv_heads, dim, block_size, spare_blocks=spare_blocks
    )
    batch, scale = len(lengths), dim**-0.5
    q = torch.randn(batch, heads, dim, dtype=dtype, device=device)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    starts = torch.arange(batch + 1, dtype=torch.int32, device=device)
    longest = max(lengths)

    def ours() -> Tensor:
        return paged_decode(
            q, *cache, tables, seq_lens, scale=scale, max_seq_len=longest, window=window
        )[0]

    def exact() -> Tensor:
        used = tables[tables >= 0].unique().long()
        small, renamed = _only(cache, tables, used)
        return attend_pages(
            q.double(), *small, renamed, seq_lens, starts, scale=scale, window=window
        )[0]

    def peers() -> Peers:
        k, v = (_contiguous(c, tables, lengths) for c in cache)
        rows = q.unsqueeze(2)
        flex = _flex(compiled)
        options = {"scale": scale, "enable_gqa": True}
        return {
            "SDPA": lambda: F.scaled_dot_product_attention(rows, k, v, **options),
            "flex_attention": lambda: flex(rows, k, v, **options),
        }

    kv_bytes = 2 * sum(lengths) * kv_heads * dim * dtype.itemsize
    flops = 4 * sum(lengths) * heads * dim
    even = min(lengths) == longest  # torch's attention takes no others without padding
    return Work(ours, exact, peers if even else dict, kv_bytes + 2 * q.nbytes, flops)


def decode_codes(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    kind: str,
    lengths: Sequence[int],
    heads: int = 32,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
) -> Work:
    """One new token for each of some sequences, whose keys and values are kept in 8 bits.

    `kind` is as in `kv_cache_dtype`. The peer reads as many numbers in 16 bits.
    """
    cache, tables = make_pool(device, dtype, lengths, kv_heads, dim, block_size)
    quantizer = QUANTIZERS[KV_CACHE_DTYPES[kind]]
    unused = cache[0].isnan().all(-1)
    (k, k_scale), (v, v_scale) = (quantizer.quantize(c.nan_to_num()) for c in cache)
    scales = {
        "k_scale": k_scale.masked_fill(unused, math.nan),
        "v_scale": v_scale.masked_fill(unused, math.nan),
    }
    batch = len(lengths)
    q = torch.randn(batch, heads, dim, dtype=dtype, device=device)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    starts = torch.arange(batch + 1, dtype=torch.int32, device=device)
    options: dict[str, Any] = {"scale": dim**-0.5, "max_seq_len": max(lengths)}

    def ours() -> Tensor:
        return paged_decode(q, k, v, tables, seq_lens, **scales, **options)[0]

    def exact() -> Tensor:
        wide = [dequantize(*pair, torch.float64) for pair in ((k, k_scale), (v, v_scale))]
        return attend_pages(q.double(), *wide, tables, seq_lens, starts, scale=dim**-0.5)[0]

    def peers() -> Peers:
        return {"paged_decode": lambda: paged_decode(q, *cache, tables, seq_lens, **options)}

    kv_bytes = 2 * sum(lengths) * kv_heads * dim * bytes_per_number(k.dtype, dim)
    return Work(ours, exact, peers, kv_bytes + 2 * q.nbytes, 4 * sum(lengths) * heads * dim)


def cascade(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    shared_blocks: int,
    own: Sequence[int],
    heads: int = 32,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
) -> Work:
    """One new token for each of some sequences, which begin with the same blocks."""
    prefix = SharedPrefix(tuple(range(len(own))), shared_blocks, block_size)
    lengths = [prefix.num_tokens + length for length in own]
    cache, tables = make_pool(device, dtype, lengths, kv_heads, dim, block_size)
    tables[1:, :shared_blocks] = tables[0, :shared_blocks]
    batch, scale = len(own), dim**-0.5
    q = torch.randn(batch, heads, dim, dtype=dtype, device=device)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    starts = torch.arange(batch + 1, dtype=torch.int32, device=device)
    most = sequences_per_tile(dim, heads // kv_heads, dtype, device)
    members = torch.from_numpy(member_tiles([prefix], most)).to(device)
    options: dict[str, Any] = {"scale": scale, "max_seq_len": max(lengths)}
    shared = (members, torch.full_like(seq_lens, prefix.num_tokens))

    def ours() -> Tensor:
        longest = prefix.num_tokens
        return cascade_decode(
            q, *cache, tables, seq_lens, *shared, max_shared_len=longest, **options
        )[0]

    def exact() -> Tensor:
        wide = (c.double() for c in cache)
        return attend_pages(q.double(), *wide, tables, seq_lens, starts, scale=scale)[0]

    def peers() -> Peers:
        return {"paged_decode": lambda: paged_decode(q, *cache, tables, seq_lens, **options)}

    kv_bytes = 2 * (prefix.num_tokens + sum(own)) * kv_heads * dim * dtype.itemsize
    return Work(ours, exact, peers, kv_bytes + 2 * q.nbytes, 4 * sum(lengths) * heads * dim)


def prefill(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    lengths: Sequence[int],
    rows: Sequence[int],
    heads: int = 32,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
    window: int | None = None,
) -> Work:
    """The last rows of some sequences; a sequence with all its rows is a prompt read whole."""
    cache, tables = make_pool(device, dtype, lengths, kv_heads, dim, block_size)
    scale, total = dim**-0.5, sum(rows)
    q = torch.randn(total, heads, dim, dtype=dtype, device=device)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    starts = torch.tensor([0, *rows], device=device).cumsum(0).int()
    options: dict[str, Any] = {"scale": scale, "window": window}

    def ours() -> Tensor:
        return paged_prefill(q, *cache, tables, seq_lens, starts, **options)

    def exact() -> Tensor:
        wide = (c.double() for c in cache)
        return attend_pages(q.double(), *wide, tables, seq_lens, starts, **options)[0]

    def peers() -> Peers:
        k, v = (_contiguous(c, tables, lengths) for c in cache)
        whole = q.transpose(0, 1).unsqueeze(0)
        flex, mask = _flex(compiled), _causal(total, device, compiled)
        return {
            "SDPA": lambda: F.scaled_dot_product_attention(
                whole, k, v, is_causal=True, scale=scale, enable_gqa=True
            ),
            "flex_attention": lambda: flex(
                whole, k, v, block_mask=mask, scale=scale, enable_gqa=True
            ),
        }

    pairs = sum(n * length - n * (n - 1) // 2 for n, length in zip(rows, lengths, strict=True))
    kv_bytes = 2 * sum(lengths) * kv_heads * dim * dtype.itemsize
    whole = len(lengths) == 1 and list(lengths) == list(rows)
    return Work(
        ours, exact, peers if whole else dict, kv_bytes + 2 * q.nbytes, 4 * pairs * heads * dim
    )


def make_pool(
    device: torch.device,
    dtype: torch.dtype,
    lengths: Sequence[int],
    kv_heads: int,
    dim: int,
    block_size: int,
    *,
    spare_blocks: int = 3,
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Random keys and values in blocks that lie in any order; NaN in every slot of nobody's.

    Returns:
        Caches [blocks, H_kv, P, D] of keys and of values, and block tables [S, W] int32.
    """
    widths = [-(-length // block_size) for length in lengths]
    shape = (spare_blocks + sum(widths), kv_heads, block_size, dim)
    caches = tuple(torch.randn(shape, dtype=dtype, device=device) for _ in range(2))
    order = torch.randperm(sum(widths), device=device).int() + spare_blocks
    tables = torch.zeros(len(lengths), max(widths), dtype=torch.int32, device=device)
    begin = 0
    for s, (length, width) in enumerate(zip(lengths, widths, strict=True)):
        tables[s, :width] = order[begin : begin + width]
        if length % block_size:
            for cache in caches:
                cache[int(tables[s, width - 1]), :, length % block_size :] = math.nan
        begin += width
    for cache in caches:
        cache[:spare_blocks] = math.nan
    return (caches[0], caches[1]), tables


def _only(
    cache: tuple[Tensor, Tensor], tables: Tensor, used: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The blocks that are used, in float64, and tables that name them by their new numbers."""
    renamed = torch.searchsorted(used, tables.long()).int()
    return (cache[0][used].double(), cache[1][used].double()), renamed


def _contiguous(cache: Tensor, tables: Tensor, lengths: Sequence[int]) -> Tensor:
    """[S, H_kv, L, D], what an engine without pages would hold."""
    rows = zip(tables, lengths, strict=True)
    return torch.stack([gather(cache, table, length) for table, length in rows])


def _flex(compiled: bool) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention


def _causal(length: int, device: torch.device, compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    return create_block_mask(
        visible, None, None, length, length, device=str(device), _compile=compiled
    )
