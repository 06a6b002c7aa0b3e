"""Stores new keys and values in the KV cache, in Triton: each token in the slot it was given.

The cache is [blocks, H_kv, P, D]; slot s is row s % P of block s // P, once for every head. Where
keys are rotated right before, `rope_cache_write` does both in one pass.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import TARGETS, CompileCase
from minillm_serve.kernels.kv_codes import LARGEST, as_codes, encode, row_steps
from minillm_serve.kernels.launch import (
    TRITON_TYPES,
    check_dtype,
    check_rows_dense,
    check_scales,
    check_shape,
    check_tensors,
    next_power_of_2,
    target_of,
    warps,
)
from torch import Tensor


@triton.jit
def rows_of_slot(
    cache_ptr, slot, head, stride_block, stride_head, stride_slot, P: tl.constexpr
):  # fmt: skip
    """Where one slot's row begins in each head: pointers [HEADS, 1].

    slot and head are int64: a cache of more than 2^31 elements is normal.
    """
    at = cache_ptr + slot // P * stride_block + slot % P * stride_slot
    return at + (head * stride_head)[:, None]


@triton.jit
def kv_write_kernel(
    k_ptr, v_ptr, slots_ptr, k_cache_ptr, v_cache_ptr, ks_ptr, vs_ptr,
    stride_k_token, stride_k_head, stride_v_token, stride_v_head,
    stride_kc_block, stride_kc_head, stride_kc_slot,
    stride_vc_block, stride_vc_head, stride_vc_slot,
    stride_ks_block, stride_ks_head, stride_vs_block, stride_vs_head,
    H_KV: tl.constexpr, D: tl.constexpr, P: tl.constexpr,
    HEADS: tl.constexpr, D_PADDED: tl.constexpr,
):  # fmt: skip
    """Program (t, j): HEADS heads of token t."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return  # a row that pads the batch: nobody's, so it may overwrite nobody's keys
    head = tl.program_id(1).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, D_PADDED)[None, :]
    inside = (head < H_KV)[:, None] & (d < D)

    k_from = k_ptr + token * stride_k_token + (head * stride_k_head)[:, None]
    v_from = v_ptr + token * stride_v_token + (head * stride_v_head)[:, None]
    k = tl.load(k_from + d, mask=inside, other=0.0)
    v = tl.load(v_from + d, mask=inside, other=0.0)
    k_to = rows_of_slot(k_cache_ptr, slot, head, stride_kc_block, stride_kc_head, stride_kc_slot, P)
    v_to = rows_of_slot(v_cache_ptr, slot, head, stride_vc_block, stride_vc_head, stride_vc_slot, P)
    if ks_ptr is not None:
        k, v = k.to(tl.float32), v.to(tl.float32)
        top, spoilt = tl.max(tl.abs(k), axis=1), tl.sum(k * 0.0, axis=1)
        scales, steps = row_steps(top, spoilt, k_cache_ptr)
        k = encode(k, steps[:, None], k_cache_ptr)
        to = ks_ptr + slot // P * stride_ks_block + slot % P + head * stride_ks_head
        tl.store(to, scales, mask=head < H_KV)
        top, spoilt = tl.max(tl.abs(v), axis=1), tl.sum(v * 0.0, axis=1)
        scales, steps = row_steps(top, spoilt, v_cache_ptr)
        v = encode(v, steps[:, None], v_cache_ptr)
        to = vs_ptr + slot // P * stride_vs_block + slot % P + head * stride_vs_head
        tl.store(to, scales, mask=head < H_KV)
    tl.store(k_to + d, k, mask=inside)
    tl.store(v_to + d, v, mask=inside)


class TileConfig(NamedTuple):
    """How much of a token one program takes."""

    heads: int
    padded: int
    num_warps: int


def choose_config(num_heads: int, width: int, target: str) -> TileConfig:
    """Up to 1,024 numbers a program, 8 a thread: one load of 16 bytes in bf16.

    Larger programs would leave a small batch with too few of them for all multiprocessors.
    """
    padded = next_power_of_2(width)
    heads = min(next_power_of_2(num_heads), max(1, 1024 // padded))
    return TileConfig(heads, padded, warps(heads * padded // 8, target))


def kv_write(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Stores keys and values; a slot that is named twice ends up with either.

    Args:
        k: [T, H_kv, D]; T and H_kv may be strided.
        v: same.
        k_cache: [blocks, H_kv, P, D], written; all but D may be strided. Of k's dtype or another;
            int8 or float8_e4m3fn for codes.
        v_cache: same.
        slot_mapping: [T] int64 or int32; the slot of each token, -1 for a row that is not stored.
        k_scale: [blocks, H_kv, P] float32, written: what codes are multiplied by. None, if the
            caches hold none.
        v_scale: same.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    check_shape("k", k, None, None, None)
    tokens, kv_heads, dim = k.shape
    check_tensors(kv_write_kernel, k, v=v, k_cache=k_cache, v_cache=v_cache)
    check_shape("v", v, tokens, kv_heads, dim)
    for name, tensor in {"k": k, "v": v}.items():
        check_dtype(name, tensor, *TRITON_TYPES)
        check_rows_dense(name, tensor)
    check_cache(k_cache, v_cache, kv_heads, dim, k_scale, v_scale)
    check_slots(slot_mapping, tokens, k_cache)
    config = choose_config(kv_heads, dim, target_of(k.device))
    if tokens:
        kv_write_kernel[(tokens, triton.cdiv(kv_heads, config.heads))](
            k, v, slot_mapping, as_codes(k_cache), as_codes(v_cache), k_scale, v_scale,
            *k.stride()[:2], *v.stride()[:2], *k_cache.stride()[:3], *v_cache.stride()[:3],
            *scale_strides(k_scale), *scale_strides(v_scale),
            H_KV=kv_heads, D=dim, P=k_cache.shape[2], HEADS=config.heads, D_PADDED=config.padded,
            num_warps=config.num_warps, enable_fp_fusion=True,
        )  # fmt: skip


def check_cache(
    k_cache: Tensor,
    v_cache: Tensor,
    kv_heads: int,
    dim: int,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
) -> None:
    """Raises ValueError unless a pair of caches holds keys and values of such heads."""
    check_shape("k_cache", k_cache, None, kv_heads, None, dim)
    check_shape("v_cache", v_cache, *k_cache.shape)
    check_scales(k_cache, v_cache, k_scale, v_scale)
    for name, cache in {"k_cache": k_cache, "v_cache": v_cache}.items():
        check_dtype(name, cache, *(TRITON_TYPES if k_scale is None else LARGEST))
        check_rows_dense(name, cache)


def scale_strides(scale: Tensor | None) -> tuple[int, ...]:
    """Of blocks and heads."""
    return (0, 0) if scale is None else scale.stride()[:2]


def check_slots(slot_mapping: Tensor, tokens: int, cache: Tensor) -> None:
    """Raises ValueError unless each token has a slot of the cache, or -1.

    On a GPU only the shape is looked at: reading the values would wait for all that runs there.
    """
    check_shape("slot_mapping", slot_mapping, tokens)
    check_dtype("slot_mapping", slot_mapping, torch.int64, torch.int32)
    if slot_mapping.device != cache.device:
        raise ValueError(f"slot_mapping is on {slot_mapping.device}, move it to {cache.device}")
    if tokens and slot_mapping.device.type == "cpu":
        low, high = (int(value) for value in slot_mapping.aminmax())
        slots = cache.shape[0] * cache.shape[2]
        if low < -1 or high >= slots:
            raise ValueError(
                f"slot_mapping holds {low if low < -1 else high}: the cache has slots "
                f"0 .. {slots - 1}, and -1 means that a row is not stored"
            )


def kv_write_reference(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor
) -> None:
    """What `kv_write` does."""
    stored = slot_mapping >= 0
    slots, size = slot_mapping[stored], k_cache.shape[2]
    k_cache[slots // size, :, slots % size] = k[stored].to(k_cache.dtype)
    v_cache[slots // size, :, slots % size] = v[stored].to(v_cache.dtype)


def compile_cases() -> list[CompileCase]:
    """The heads of SmolLM2-135M and Llama-3-8B."""
    shapes = ((3, 64, "bf16"), (8, 128, "bf16"), (8, 128, "i8"), (8, 128, "u8"))
    return [_compile_case(target, *shape) for target in TARGETS for shape in shapes]


def code_pointers(kind: str) -> tuple[str, dict[str, str], dict[str, None]]:
    """How a cache of such numbers is described: a name, pointers, and what is not given."""
    name = {"bf16": "", "i8": " to int8", "u8": " to fp8"}[kind]
    scales = ("ks_ptr", "vs_ptr")
    if kind == "bf16":
        return name, {}, dict.fromkeys(scales)
    return name, dict.fromkeys(scales, "fp32"), {}


def _compile_case(target: str, kv_heads: int, dim: int, kind: str) -> CompileCase:
    config = choose_config(kv_heads, dim, target)
    name, scales, absent = code_pointers(kind)
    caches = dict.fromkeys(("k_cache_ptr", "v_cache_ptr"), kind)
    return CompileCase(
        name=f"kv_write bf16 {kv_heads}x{dim}{name}",
        kernel=kv_write_kernel,
        target=target,
        pointers={"k_ptr": "bf16", "v_ptr": "bf16", **caches, "slots_ptr": "i64", **scales},
        scalars={},
        constexprs={
            "H_KV": kv_heads, "D": dim, "P": 16, "HEADS": config.heads, "D_PADDED": config.padded,
            **absent,
        },
        num_warps=config.num_warps,
        wide_loads=kv_heads * dim >= 512,  # or AMD's 64 threads cannot all have 16 bytes
        index_loads=1,  # the slot
    )  # fmt: skip
