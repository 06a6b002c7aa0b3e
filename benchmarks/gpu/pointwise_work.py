"""Everything between matrix products at work, beside torch and what `torch.compile` makes of it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from minillm_serve.kernels.copy_blocks import copy_blocks
from minillm_serve.kernels.kv_write import kv_write, kv_write_reference
from minillm_serve.kernels.rope_cache_write import (
    rope_cache_write,
    rope_cache_write_reference,
    rotation_table,
)
from minillm_serve.kernels.silu_mul import silu_mul, silu_mul_reference
from torch import Tensor

from benchmarks.gpu.case import Work
from minillm_serve.kernels import rms_norm as norms
from minillm_serve.models.functional import rotate
from minillm_serve.runtime.attention.torch_backend import TorchAttention

EPS = 1e-6


def _randn(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device=device)


def _torch(
    function: Callable[..., Any], compiled: bool, *args: Any, **options: Any
) -> Mapping[str, Callable[[], Any]]:
    """A function as it is, and compiled."""
    made = torch.compile(function, dynamic=False) if compiled else function
    return {
        "torch": lambda: function(*args, **options),
        "torch.compile": lambda: made(*args, **options),
    }


def rms_norm(
    device: torch.device, dtype: torch.dtype, compiled: bool, *, tokens: int, heads: int, dim: int
) -> Work:
    """The norm of query and key heads, each with its own weight, out of a fused projection."""
    fused = _randn(device, dtype, tokens, heads + 4, dim)
    x, weight = fused[:, :heads], _randn(device, dtype, heads, dim)
    return Work(
        ours=lambda: norms.rms_norm(x, weight, EPS),
        exact=lambda: norms.rms_norm_reference(x.double(), weight.double(), EPS),
        peers=lambda: _torch(norms.rms_norm_reference, compiled, x, weight, EPS),
        num_bytes=2 * x.numel() * dtype.itemsize,
    )


def add_rms_norm(
    device: torch.device, dtype: torch.dtype, compiled: bool, *, tokens: int, width: int
) -> Work:
    """Adding to the residual stream and reading its norm."""
    x, start = (_randn(device, dtype, tokens, width) for _ in range(2))
    weight, residual = _randn(device, dtype, width), start.clone()

    def exact() -> tuple[Tensor, ...]:
        # The stream is rounded before its norm is taken.
        total = (x + start).double()
        return norms.rms_norm_reference(total, weight.double(), EPS), total

    return Work(
        ours=lambda: norms.add_rms_norm(x, residual, weight, EPS),
        exact=exact,
        peers=lambda: _torch(norms.add_rms_norm_reference, compiled, x, residual, weight, EPS),
        num_bytes=4 * x.nbytes,
        reset=lambda: residual.copy_(start),
    )


def activation(
    device: torch.device, dtype: torch.dtype, compiled: bool, *, tokens: int, width: int
) -> Work:
    """silu(gate) * up."""
    gate_up = _randn(device, dtype, tokens, 2 * width)
    return Work(
        ours=lambda: silu_mul(gate_up),
        exact=lambda: silu_mul_reference(gate_up.double()),
        peers=lambda: _torch(silu_mul_reference, compiled, gate_up),
        num_bytes=1.5 * gate_up.nbytes,
    )


def rotate_and_write(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    tokens: int,
    heads: int = 32,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
    norm: bool = False,
) -> Work:
    """Rotation of queries and keys, and the way of keys and values to their slots."""
    qkv = _randn(device, dtype, tokens, heads + 2 * kv_heads, dim)
    positions = torch.arange(tokens, device=device)
    slots, caches = _slots_and_caches(device, dtype, tokens, kv_heads, dim, block_size)
    frequencies = 10000.0 ** -(torch.arange(0, dim, 2, device=device) / dim)
    table = rotation_table(frequencies, tokens)
    weight = _randn(device, dtype, heads + kv_heads, dim) if norm else None

    def ours() -> tuple[Tensor, ...]:
        q = rope_cache_write(qkv, positions, slots, table, *caches, norm_weight=weight, eps=EPS)
        return q, *caches

    def exact() -> tuple[Tensor, ...]:
        wide = [torch.zeros_like(cache, dtype=torch.float64) for cache in caches]
        given = None if weight is None else weight.double()
        q = rope_cache_write_reference(
            qkv.double(), positions, slots, table, *wide, norm_weight=given, eps=EPS
        )
        return q, *wide

    return Work(
        ours,
        exact,
        lambda: _torch(_unfused, compiled, qkv, positions, slots, table, *caches),
        num_bytes=2 * qkv.nbytes,
        reset=lambda: [cache.zero_() for cache in caches],
    )


def _unfused(
    qkv: Tensor,
    positions: Tensor,
    slots: Tensor,
    table: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
) -> Tensor:
    """What an engine without the kernel does: rotates in two operations, then stores."""
    kv_heads = k_cache.shape[1]
    cos, sin = table[positions].to(qkv.dtype)[:, None].chunk(2, dim=-1)
    qk, v = qkv[:, :-kv_heads], qkv[:, -kv_heads:]
    qk = rotate(qk, torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))
    TorchAttention().write(qk[:, -kv_heads:], v, k_cache, v_cache, slots)
    return qk[:, :-kv_heads]


def write(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    tokens: int,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
) -> Work:
    """The way of keys and values to their slots."""
    k, v = _randn(device, dtype, tokens, 2 * kv_heads, dim).split(kv_heads, dim=1)
    slots, caches = _slots_and_caches(device, dtype, tokens, kv_heads, dim, block_size)

    def ours() -> tuple[Tensor, ...]:
        kv_write(k, v, *caches, slots)
        return caches

    def exact() -> tuple[Tensor, ...]:
        wide = [torch.zeros_like(cache, dtype=torch.float64) for cache in caches]
        kv_write_reference(k.double(), v.double(), *wide, slots)
        return tuple(wide)

    return Work(
        ours,
        exact,
        lambda: _torch(TorchAttention().write, compiled, k, v, *caches, slots),
        num_bytes=4 * k.numel() * dtype.itemsize,
        reset=lambda: [cache.zero_() for cache in caches],
    )


def move_blocks(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    blocks: int,
    layers: int,
    kv_heads: int = 8,
    dim: int = 128,
    block_size: int = 16,
) -> Work:
    """Half of a pool's blocks, of all layers, to the other half."""
    shape = (2 * blocks, kv_heads, block_size, dim)
    pool = [_randn(device, dtype, *shape) for _ in range(2 * layers)]
    start = [tensor.clone() for tensor in pool]
    moves = list(zip(torch.randperm(blocks).tolist(), range(blocks, 2 * blocks), strict=True))
    sources, targets = (torch.tensor(ids, device=device) for ids in zip(*moves, strict=True))

    def ours() -> tuple[Tensor, ...]:
        copy_blocks(pool, pool, moves)
        return tuple(pool)

    def exact() -> tuple[Tensor, ...]:
        moved = [tensor.double() for tensor in start]
        for tensor in moved:
            tensor[targets] = tensor[sources]
        return tuple(moved)

    def index_copy() -> None:
        for tensor in pool:
            tensor.index_copy_(0, targets, tensor[sources])

    return Work(
        ours,
        exact,
        lambda: {"index_copy_": index_copy},
        num_bytes=sum(tensor.nbytes for tensor in pool),
        reset=lambda: [tensor.copy_(old) for tensor, old in zip(pool, start, strict=True)],
    )


def _slots_and_caches(
    device: torch.device,
    dtype: torch.dtype,
    tokens: int,
    kv_heads: int,
    dim: int,
    block_size: int,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A slot for each token, anywhere, and empty caches of keys and of values."""
    blocks = -(-tokens // block_size) + 1
    slots = torch.randperm(blocks * block_size, device=device)[:tokens]
    shape = (blocks, kv_heads, block_size, dim)
    k, v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
    return slots, (k, v)
