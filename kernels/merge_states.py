"""Attention over two sets of keys, merged into attention over both, in Triton.

Softmax over a union is the mean of the softmaxes, weighted by the sum of e^score of each, of which
lse is the logarithm (Milakov and Gimelshein, 2018, arXiv:1805.02867). So a prefix that many
sequences share can be attended once for all of them, and each sequence's own keys by themselves
(cascade inference: Ye et al., 2024).
"""

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import TARGETS, CompileCase
from minillm_serve.kernels.kv_write import choose_config
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
def merge_states_kernel(
    a_ptr, lse_a_ptr, b_ptr, lse_b_ptr, out_ptr, lse_ptr,
    stride_a_token, stride_a_head, stride_lse_a, stride_b_token, stride_b_head, stride_lse_b,
    stride_out_token, stride_out_head, stride_lse,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, D_PADDED: tl.constexpr,
):  # fmt: skip
    """Program (t, j): HEADS heads of token t."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, D_PADDED)[None, :]
    is_head = head < H
    lse_a = tl.load(lse_a_ptr + token * stride_lse_a + head, mask=is_head, other=float("-inf"))
    lse_b = tl.load(lse_b_ptr + token * stride_lse_b + head, mask=is_head, other=float("-inf"))
    # Where neither saw anything, -inf minus -inf would be NaN.
    top = tl.maximum(lse_a, lse_b)
    base = tl.where(top == float("-inf"), 0.0, top)
    weight_a, weight_b = tl.exp(lse_a - base), tl.exp(lse_b - base)
    total = weight_a + weight_b
    total = tl.where(total == 0.0, 1.0, total)

    # What a state that saw nothing holds is not looked at: it may be NaN.
    a_at = a_ptr + token * stride_a_token + (head * stride_a_head)[:, None] + d
    b_at = b_ptr + token * stride_b_token + (head * stride_b_head)[:, None] + d
    a = tl.load(a_at, mask=(weight_a > 0)[:, None] & (d < D), other=0.0).to(tl.float32)
    b = tl.load(b_at, mask=(weight_b > 0)[:, None] & (d < D), other=0.0).to(tl.float32)
    out = a * (weight_a / total)[:, None] + b * (weight_b / total)[:, None]
    out_at = out_ptr + token * stride_out_token + (head * stride_out_head)[:, None] + d
    tl.store(out_at, out, mask=is_head[:, None] & (d < D))
    tl.store(lse_ptr + token * stride_lse + head, top + tl.log(total), mask=is_head)


def merge_states(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Merges attention over two sets of keys; reference: `attention_reference.merge`.

    Args:
        a: [T, H, D], attention over the first set; T and H may be strided.
        lse_a: [T, H] float32, logarithms of the sums of e^score; -inf where nothing was seen.
        b: as a, over the second set.
        lse_b: as lse_a.
        out: as a, written; may be a or b. A new tensor if None.

    Returns:
        out, and [T, H] float32: a state that can be merged again.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device) if out is None else out
    check_tensors(merge_states_kernel, a, lse_a=lse_a, b=b, lse_b=lse_b, out=out)
    check_shape("a", a, None, None, None)
    tokens, heads, dim = a.shape
    for name, tensor in {"a": a, "b": b, "out": out}.items():
        check_shape(name, tensor, tokens, heads, dim)
        check_dtype(name, tensor, *TRITON_TYPES)
        check_rows_dense(name, tensor)
    for name, tensor in {"lse_a": lse_a, "lse_b": lse_b}.items():
        check_shape(name, tensor, tokens, heads)
        check_dtype(name, tensor, torch.float32)
        check_rows_dense(name, tensor)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=a.device)
    config = choose_config(heads, dim, target_of(a.device))
    if out.numel():
        merge_states_kernel[(tokens, triton.cdiv(heads, config.heads))](
            a, lse_a, b, lse_b, out, lse,
            *a.stride()[:2], lse_a.stride(0), *b.stride()[:2], lse_b.stride(0),
            *out.stride()[:2], lse.stride(0),
            H=heads, D=dim, HEADS=config.heads, D_PADDED=config.padded,
            num_warps=config.num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return out, lse


def compile_cases() -> list[CompileCase]:
    """The heads of Llama-3-8B and SmolLM2-135M."""
    return [_compile_case(target, *heads) for target in TARGETS for heads in ((32, 128), (9, 64))]


def _compile_case(target: str, heads: int, dim: int) -> CompileCase:
    config = choose_config(heads, dim, target)
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "out_ptr"), "bf16")
    return CompileCase(
        name=f"merge_states bf16 {heads}x{dim}",
        kernel=merge_states_kernel,
        target=target,
        pointers=pointers | dict.fromkeys(("lse_a_ptr", "lse_b_ptr", "lse_ptr"), "fp32"),
        scalars={},
        constexprs={"H": heads, "D": dim, "HEADS": config.heads, "D_PADDED": config.padded},
        num_warps=config.num_warps,
        index_loads=4,  # two lse a thread, a number a head
    )
