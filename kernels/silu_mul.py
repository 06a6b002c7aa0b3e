"""The gate of SwiGLU in Triton: silu(gate) * up of a fused projection, in one pass over it.

SwiGLU: Shazeer (2020), arXiv:2002.05202. silu(x) = x / (1 + e^-x). Unfused, the activated gate
would go to memory and come back; here gate and up are read and only their product is written.
"""

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
    target_of,
    warps,
)
from torch import Tensor

#: Columns and threads a program; a thread has 8 of each half, one load of 16 bytes in bf16.
BLOCK, THREADS = 1024, 128


@triton.jit
def silu_mul_kernel(
    gate_up_ptr, out_ptr, stride_gate_up, stride_out, INNER: tl.constexpr, BLOCK: tl.constexpr
):
    """Program (t, j): BLOCK columns of token t."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < INNER
    gate_at = gate_up_ptr + token * stride_gate_up + column
    gate = tl.load(gate_at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_at + INNER, mask=inside, other=0.0).to(tl.float32)
    # With e = e^-|gate| the gate is 1 / (1 + e) open, or e / (1 + e) below zero: nothing overflows.
    e = tl.exp(-tl.abs(gate))
    out = gate * tl.where(gate > 0, 1.0, e) / (1.0 + e) * up
    tl.store(out_ptr + token * stride_out + column, out, mask=inside)


def silu_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """silu(gate) * up, in fp32 inside.

    Args:
        gate_up: [T, 2 * inner], gate first; T may be strided.
        out: [T, inner], written. A new tensor if None.

    Returns:
        out, in gate_up's dtype.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    check_shape("gate_up", gate_up, None, None)
    tokens, width = gate_up.shape
    if width % 2:
        raise ValueError(f"gate_up has {width} columns, must have an even number: gate, then up")
    if out is None:
        out = torch.empty(tokens, width // 2, dtype=gate_up.dtype, device=gate_up.device)
    check_tensors(silu_mul_kernel, gate_up, out=out)
    check_shape("out", out, tokens, width // 2)
    for name, tensor in {"gate_up": gate_up, "out": out}.items():
        check_dtype(name, tensor, *TRITON_TYPES)
        check_rows_dense(name, tensor)
    if out.numel():
        silu_mul_kernel[(tokens, triton.cdiv(width // 2, BLOCK))](
            gate_up, out, gate_up.stride(0), out.stride(0),
            INNER=width // 2, BLOCK=BLOCK,
            num_warps=warps(THREADS, target_of(out.device)), enable_fp_fusion=True,
        )  # fmt: skip
    return out


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """What `silu_mul` computes, in gate_up's dtype: give it float64."""
    gate, up = gate_up.chunk(2, dim=-1)
    return gate / (1 + torch.exp(-gate)) * up


def compile_cases() -> list[CompileCase]:
    """Inner sizes of SmolLM2-135M and Llama-3-8B."""
    return [
        CompileCase(
            name=f"silu_mul bf16 {inner}",
            kernel=silu_mul_kernel,
            target=target,
            pointers={"gate_up_ptr": "bf16", "out_ptr": "bf16"},
            scalars={},
            constexprs={"INNER": inner, "BLOCK": BLOCK},
            num_warps=warps(THREADS, target),
        )
        for target in TARGETS
        for inner in (1536, 14336)
    ]
