"""All that lies between the qkv projection and attention, in one pass: norm, rotation, cache write.

Rotary embedding: Su et al. (2021), arXiv:2104.09864. Each pair (x[i], x[i + D/2]) of a head turns
by the angle position * frequency[i], so that a query and a key meet at an angle which only their
distance sets. Some models (Qwen3) first take the norm of every query and key head.

Unfused, queries and keys go to memory and back for the norm, for the rotation and for the write.
Here every number is read once and written once, to where it is wanted.
"""

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import TARGETS, CompileCase
from minillm_serve.kernels.kv_codes import as_codes, encode, row_steps
from minillm_serve.kernels.kv_write import (
    TileConfig,
    check_cache,
    check_slots,
    choose_config,
    code_pointers,
    kv_write_reference,
    rows_of_slot,
    scale_strides,
)
from minillm_serve.kernels.launch import (
    TRITON_TYPES,
    check_dtype,
    check_rows_dense,
    check_shape,
    check_tensors,
    target_of,
)
from torch import Tensor


@triton.jit
def rope_cache_write_kernel(
    qkv_ptr, positions_ptr, slots_ptr, table_ptr, weight_ptr, q_ptr, k_cache_ptr, v_cache_ptr,
    ks_ptr, vs_ptr, eps,
    stride_qkv_token, stride_qkv_head, stride_table, stride_weight, stride_q_token, stride_q_head,
    stride_kc_block, stride_kc_head, stride_kc_slot,
    stride_vc_block, stride_vc_head, stride_vc_slot,
    stride_ks_block, stride_ks_head, stride_vs_block, stride_vs_head,
    H: tl.constexpr, H_KV: tl.constexpr, D: tl.constexpr, P: tl.constexpr,
    HEADS: tl.constexpr, HALF_PADDED: tl.constexpr,
):  # fmt: skip
    """Program (t, j): HEADS of token t's heads, of which H are queries, H_KV keys, H_KV values.

    One tile may hold all three kinds: what a head is decides, by masks, what is done with it.
    """
    HALF: tl.constexpr = D // 2
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return  # a row that pads the batch: nobody's, so it may overwrite nobody's keys
    head = tl.program_id(1).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    turns = (head < H + H_KV)[:, None]  # values do not
    i = tl.arange(0, HALF_PADDED)[None, :]
    inside = (head < H + 2 * H_KV)[:, None] & (i < HALF)

    # A head comes in two halves, so that the two numbers of a pair meet in one thread.
    at = qkv_ptr + token * stride_qkv_token + (head * stride_qkv_head)[:, None] + i
    a = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)

    turned_a, turned_b = a, b
    if weight_ptr is not None:
        at = weight_ptr + (head * stride_weight)[:, None] + i
        weight_a = tl.load(at, mask=inside & turns, other=0.0).to(tl.float32)
        weight_b = tl.load(at + HALF, mask=inside & turns, other=0.0).to(tl.float32)
        mean_square = (tl.sum(a * a, axis=1) + tl.sum(b * b, axis=1)) / D
        scale = tl.rsqrt(mean_square + eps)[:, None]
        turned_a, turned_b = a * scale * weight_a, b * scale * weight_b

    position = tl.load(positions_ptr + token).to(tl.int64)
    at = table_ptr + position * stride_table + i
    cos = tl.load(at, mask=i < HALF, other=0.0)
    sin = tl.load(at + HALF, mask=i < HALF, other=0.0)
    turned_a, turned_b = turned_a * cos - turned_b * sin, turned_b * cos + turned_a * sin
    a, b = tl.where(turns, turned_a, a), tl.where(turns, turned_b, b)

    to = q_ptr + token * stride_q_token + (head * stride_q_head)[:, None] + i
    is_q = inside & (head < H)[:, None]
    tl.store(to, a, mask=is_q)
    tl.store(to + HALF, b, mask=is_q)

    if ks_ptr is not None:
        top = tl.maximum(tl.max(tl.abs(a), axis=1), tl.max(tl.abs(b), axis=1))
        spoilt = tl.sum(a * 0.0, axis=1) + tl.sum(b * 0.0, axis=1)
        scales, steps = row_steps(top, spoilt, k_cache_ptr)
        a = encode(a, steps[:, None], k_cache_ptr)
        b = encode(b, steps[:, None], k_cache_ptr)
        to = ks_ptr + slot // P * stride_ks_block + slot % P + (head - H) * stride_ks_head
        tl.store(to, scales, mask=(head >= H) & (head < H + H_KV))
        to = vs_ptr + slot // P * stride_vs_block + slot % P + (head - H - H_KV) * stride_vs_head
        tl.store(to, scales, mask=(head >= H + H_KV) & (head < H + 2 * H_KV))
    to = rows_of_slot(
        k_cache_ptr, slot, head - H, stride_kc_block, stride_kc_head, stride_kc_slot, P
    )
    is_k = inside & turns & (head >= H)[:, None]
    tl.store(to + i, a, mask=is_k)
    tl.store(to + i + HALF, b, mask=is_k)
    to = rows_of_slot(
        v_cache_ptr, slot, head - H - H_KV, stride_vc_block, stride_vc_head, stride_vc_slot, P
    )
    is_v = inside & (head >= H + H_KV)[:, None]
    tl.store(to + i, a, mask=is_v)
    tl.store(to + i + HALF, b, mask=is_v)


def rotation_table(frequencies: Tensor, length: int) -> Tensor:
    """The cosines and sines of all positions below a length; made once for a model.

    Args:
        frequencies: [D/2] float32, radians per position.
        length: positions.

    Returns:
        [length, D] float32: the cosines of D/2 angles, then their sines. Rounded to bf16, whose
        numbers have 8 bits, an angle would be off by a tenth of a degree.
    """
    positions = torch.arange(length, dtype=torch.float32, device=frequencies.device)
    angles = positions[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def rope_cache_write(
    qkv: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    table: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
    out: Tensor | None = None,
) -> Tensor:
    """Rotates queries and keys and stores keys and values.

    Args:
        qkv: [T, H + 2 H_kv, D]: query heads, key heads, value heads; T and heads may be strided.
        positions: [T] int64 or int32, each below `len(table)`.
        slot_mapping: [T] int64 or int32; where each token is stored, -1 for a row that pads the
            batch: nothing is computed for it.
        table: [length, D] float32, from `rotation_table`.
        k_cache: [blocks, H_kv, P, D], written; all but D may be strided. int8 or float8_e4m3fn for
            codes.
        v_cache: same.
        k_scale: [blocks, H_kv, P] float32, written: what codes are multiplied by. None, if the
            caches hold none.
        v_scale: same.
        norm_weight: [H + H_kv, D], for models that take the norm of query and key heads.
        eps: of that norm.
        out: [T, H, D] like qkv, written. A new tensor if None.

    Returns:
        out: the rotated queries. What a padding row held before stays in it.

    Raises:
        ValueError: dtype, shape or layout do not fit, or an index is out of range (looked at on a
            CPU only: a GPU would have to be waited for).
        RuntimeError: the kernel cannot run on this device.
    """
    check_shape("qkv", qkv, None, None, None)
    (tokens, rows, dim), kv_heads = qkv.shape, k_cache.shape[1]
    heads = rows - 2 * kv_heads
    if heads < 1 or dim % 2:
        raise ValueError(
            f"qkv has shape {list(qkv.shape)} and k_cache {kv_heads} heads: must be "
            f"[T, H + {2 * kv_heads}, D] with H >= 1 and an even D"
        )
    out = qkv.new_empty(tokens, heads, dim) if out is None else out
    _check(qkv, positions, table, norm_weight, out, heads + kv_heads)
    check_cache(k_cache, v_cache, kv_heads, dim, k_scale, v_scale)
    check_slots(slot_mapping, tokens, k_cache)
    check_tensors(rope_cache_write_kernel, qkv, k_cache=k_cache, v_cache=v_cache)
    config = choose_config(rows, dim // 2, target_of(qkv.device))
    if tokens:
        rope_cache_write_kernel[(tokens, triton.cdiv(rows, config.heads))](
            qkv, positions, slot_mapping, table, norm_weight, out,
            as_codes(k_cache), as_codes(v_cache), k_scale, v_scale, eps,
            *qkv.stride()[:2], table.stride(0),
            0 if norm_weight is None else norm_weight.stride(0),
            *out.stride()[:2], *k_cache.stride()[:3], *v_cache.stride()[:3],
            *scale_strides(k_scale), *scale_strides(v_scale),
            **_constants(heads, kv_heads, dim, k_cache.shape[2], config),
            num_warps=config.num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def _check(
    qkv: Tensor,
    positions: Tensor,
    table: Tensor,
    norm_weight: Tensor | None,
    out: Tensor,
    normed: int,
) -> None:
    tokens, _, dim = qkv.shape
    tensors = {"qkv": qkv, "out": out}
    if norm_weight is not None:
        tensors["norm_weight"] = norm_weight
        check_shape("norm_weight", norm_weight, normed, dim)
    check_tensors(rope_cache_write_kernel, qkv, positions=positions, table=table, **tensors)
    for name, tensor in tensors.items():
        check_dtype(name, tensor, *TRITON_TYPES)
        check_rows_dense(name, tensor)
    check_shape("out", out, tokens, normed - (qkv.shape[1] - normed), dim)
    check_shape("table", table, None, dim)
    check_dtype("table", table, torch.float32)
    check_rows_dense("table", table)
    check_shape("positions", positions, tokens)
    check_dtype("positions", positions, torch.int64, torch.int32)
    if tokens and qkv.device.type == "cpu":
        low, high = (int(value) for value in positions.aminmax())
        if low < 0 or high >= len(table):
            raise ValueError(
                f"positions holds {low if low < 0 else high}: the table knows 0 .. "
                f"{len(table) - 1}; make it longer with rotation_table(frequencies, length)"
            )


def _constants(
    heads: int, kv_heads: int, dim: int, size: int, config: TileConfig
) -> dict[str, int]:
    return {
        "H": heads, "H_KV": kv_heads, "D": dim, "P": size,
        "HEADS": config.heads, "HALF_PADDED": config.padded,
    }  # fmt: skip


def rope_cache_write_reference(
    qkv: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    table: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    norm_weight: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """What `rope_cache_write` computes, in qkv's dtype: give it float64."""
    kv_heads = k_cache.shape[1]
    qk, v = qkv[:, :-kv_heads], qkv[:, -kv_heads:]
    if norm_weight is not None:
        qk = qk * torch.rsqrt(qk.square().mean(-1, keepdim=True) + eps) * norm_weight
    cos, sin = table[positions].to(qkv.dtype)[:, None].chunk(2, dim=-1)
    a, b = qk.chunk(2, dim=-1)
    qk = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    kv_write_reference(qk[:, -kv_heads:], v, k_cache, v_cache, slot_mapping)
    return qk[:, :-kv_heads]


def compile_cases() -> list[CompileCase]:
    """The heads of SmolLM2-135M, Llama-3-8B, and Qwen3-0.6B with its norm."""
    shapes = (
        (9, 3, 64, False, "bf16"),
        (32, 8, 128, False, "bf16"),
        (16, 8, 128, True, "bf16"),
        (32, 8, 128, False, "i8"),
        (32, 8, 128, False, "u8"),
    )
    return [_compile_case(target, *shape) for target in TARGETS for shape in shapes]


def _compile_case(
    target: str, heads: int, kv_heads: int, dim: int, norm: bool, kind: str
) -> CompileCase:
    config = choose_config(heads + 2 * kv_heads, dim // 2, target)
    codes, scales, absent = code_pointers(kind)
    pointers = {"qkv_ptr": "bf16", "q_ptr": "bf16", "k_cache_ptr": kind, "v_cache_ptr": kind}
    pointers |= {"positions_ptr": "i64", "slots_ptr": "i64", "table_ptr": "fp32", **scales}
    constants: dict[str, int | None] = {**_constants(heads, kv_heads, dim, 16, config), **absent}
    if norm:
        pointers["weight_ptr"] = "bf16"
    else:
        constants["weight_ptr"] = None
    return CompileCase(
        name=f"rope_cache_write bf16 {heads}+{kv_heads}x{dim}{' norm' if norm else ''}{codes}",
        kernel=rope_cache_write_kernel,
        target=target,
        pointers=pointers,
        scalars={"eps": "fp32"},
        constexprs=constants,
        num_warps=config.num_warps,
        index_loads=2,  # slot and position
    )
