"""Root mean square norm in Triton, alone or with the addition to the residual stream before it.

RMSNorm: Zhang and Sennrich (2019), arXiv:1910.07467. Its time is that of memory: a row is read once
into registers, so that the second look at it, after the mean square is known, costs nothing. Adding
first saves the residual stream a trip to memory and back.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import TARGETS, CompileCase
from minillm_serve.kernels.launch import (
    TRITON_TYPES,
    check_dtype,
    check_rows_dense,
    check_shape,
    check_tensors,
    next_power_of_2,
    target_of,
    warps,
)
from torch import Tensor


@triton.jit
def normalize(x, weight, eps, WIDTH: tl.constexpr):
    """x / sqrt(mean(x^2) + eps) * weight of each row; x [ROWS, PADDED] fp32, 0 in the padding."""
    mean_square = tl.sum(x * x, axis=1) / WIDTH
    return x * tl.rsqrt(mean_square + eps)[:, None] * weight


@triton.jit(do_not_specialize=["num_rows"])
def rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, num_rows, eps,
    stride_x_token, stride_x_group, stride_weight_group, stride_out_token, stride_out_group,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Program i: ROWS rows. Each token has GROUPS rows (its heads, say), each with a weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, group = row // GROUPS, row % GROUPS
    column = tl.arange(0, PADDED)
    inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]

    x_ptr += (token * stride_x_token + group * stride_x_group)[:, None]
    weight_ptr += (group * stride_weight_group)[:, None]
    x = tl.load(x_ptr + column[None, :], mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column[None, :], mask=inside, other=0.0).to(tl.float32)
    out = normalize(x, weight, eps, WIDTH)
    out_ptr += (token * stride_out_token + group * stride_out_group)[:, None]
    tl.store(out_ptr + column[None, :], out, mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, num_rows, eps,
    stride_x, stride_residual, stride_out,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Program i: ROWS rows; the residual stream is updated where it lies."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, PADDED)
    inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]

    x_at = x_ptr + (row * stride_x)[:, None] + column[None, :]
    residual_at = residual_ptr + (row * stride_residual)[:, None] + column[None, :]
    x = tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_at, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    # Rounded before the norm is taken: it is the norm of what the stream will hold, and a later
    # layer that reads the stream reads the same numbers.
    total = (x + residual).to(residual_ptr.dtype.element_ty)
    tl.store(residual_at, total, mask=inside)
    out = normalize(total.to(tl.float32), weight[None, :], eps, WIDTH)
    tl.store(out_ptr + (row * stride_out)[:, None] + column[None, :], out, mask=inside)


class NormConfig(NamedTuple):
    """How rows are dealt out to programs."""

    rows: int
    padded: int
    num_warps: int


def choose_config(width: int, target: str) -> NormConfig:
    """One wide row a program, or several narrow ones; 16 numbers a thread, more in very wide rows.

    With 16 numbers (two loads of 16 bytes in bf16) a thread keeps enough bytes in flight to hide
    the memory's latency, and a program of 64 threads is worth its start.
    """
    padded = next_power_of_2(width)
    rows = max(1, 1024 // padded)
    return NormConfig(rows, padded, warps(min(rows * padded // 16, 1024), target))


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """Root mean square norm over the last dimension, in fp32 inside.

    Args:
        x: [T, width], or [T, G, width]; T and G may be strided.
        weight: [width], or [G, width]: one for each of a token's rows.
        eps: added to the mean square.
        out: like x, written; may be x. A new tensor if None.

    Returns:
        out, in x's dtype.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    _check(rms_norm_kernel, x, weight=weight, out=out)
    check_shape("weight", weight, *x.shape[1:])
    check_shape("out", out, *x.shape)
    x3, weight2, out3 = (t.unsqueeze(-2) if x.dim() == 2 else t for t in (x, weight, out))
    tokens, groups, width = x3.shape
    config = choose_config(width, target_of(x.device))
    if tokens:
        rms_norm_kernel[(triton.cdiv(tokens * groups, config.rows),)](
            x3, weight2, out3, tokens * groups, eps,
            x3.stride(0), x3.stride(1), weight2.stride(0), out3.stride(0), out3.stride(1),
            GROUPS=groups, WIDTH=width, ROWS=config.rows, PADDED=config.padded,
            num_warps=config.num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Adds to the residual stream and reads its norm, in one pass.

    Args:
        x: [T, width]; T may be strided.
        residual: [T, width], changed: x is added to it.
        weight: [width].
        eps: added to the mean square.
        out: [T, width], written; may be x. A new tensor if None.

    Returns:
        The norm (out), and residual.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    _check(add_rms_norm_kernel, x, residual=residual, weight=weight, out=out)
    check_shape("x", x, None, None)
    tokens, width = x.shape
    check_shape("residual", residual, tokens, width)
    check_shape("weight", weight, width)
    check_shape("out", out, tokens, width)
    config = choose_config(width, target_of(x.device))
    if tokens:
        add_rms_norm_kernel[(triton.cdiv(tokens, config.rows),)](
            x, residual, weight, out, tokens, eps,
            x.stride(0), residual.stride(0), out.stride(0),
            WIDTH=width, ROWS=config.rows, PADDED=config.padded,
            num_warps=config.num_warps, enable_fp_fusion=True,
        )  # fmt: skip
    return out, residual


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What `rms_norm` computes, in x's dtype: give it float64."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def add_rms_norm_reference(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """What `add_rms_norm` computes, in x's dtype: give it float64."""
    total = x + residual
    return rms_norm_reference(total, weight, eps), total


def _check(kernel: object, x: Tensor, **others: Tensor) -> None:
    check_tensors(kernel, x, **others)
    for name, tensor in {"x": x, **others}.items():
        check_dtype(name, tensor, *TRITON_TYPES)
        check_rows_dense(name, tensor)


def compile_cases() -> list[CompileCase]:
    """Hidden sizes of SmolLM2-135M, Qwen3-0.6B and Llama-3-8B; Qwen3's heads."""
    shapes = ((add_rms_norm_kernel, None, 576), (add_rms_norm_kernel, None, 1024),
              (add_rms_norm_kernel, None, 4096), (rms_norm_kernel, 24, 128))  # fmt: skip
    return [_compile_case(target, *shape) for target in TARGETS for shape in shapes]


def _compile_case(target: str, kernel: Any, groups: int | None, width: int) -> CompileCase:
    config = choose_config(width, target)
    constants = {"WIDTH": width, "ROWS": config.rows, "PADDED": config.padded}
    if groups:
        constants["GROUPS"] = groups
    shape = f"{groups}x{width}" if groups else str(width)
    return CompileCase(
        name=f"{kernel.__name__.removesuffix('_kernel')} bf16 {shape}",
        kernel=kernel,
        target=target,
        pointers={name: "bf16" for name in kernel.arg_names if name.endswith("_ptr")},
        scalars={"num_rows": "i32", "eps": "fp32"},
        constexprs=constants,
        num_warps=config.num_warps,
    )
