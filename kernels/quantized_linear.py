"""Products with weights in 8 or 4 bits in Triton: w8a16 and w4a16.

With few rows a product takes as long as its weight takes to read, so weights cross the memory bus
as codes and become floats in registers, a tile at a time; the other factor stays in 16 bits. A
weight of few outputs has too few tiles for all multiprocessors, so that the columns are split as
well (split-K, as in CUTLASS); each piece is written by itself and they are added up in order, so a
result does not depend on which program was first. `minillm_serve.models.quantized` has the layout.
"""

from typing import NamedTuple

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
    compute_type,
    multiprocessors,
    target_of,
    warps,
)
from torch import Tensor

#: Columns that share a step, where they do not belong to a whole row.
GROUP = 32
#: Columns a turn of the loop, by bits: 64 bytes of a row's codes. Pieces are multiples of it.
BLOCK_K = {8: 64, 4: 128}
#: Fewest columns a piece: below that, writing and adding pieces takes longer than it saves.
LEAST_PIECE = 256
#: Programs a multiprocessor that keep memory busy.
PROGRAMS = 2


class Tiles(NamedTuple):
    """How much a program computes: rows, outputs; and by how many threads."""

    rows: int
    outputs: int
    threads: int


#: Up to so many rows, these tiles. A tile has at least 16 rows: matrix instructions want them.
FEW, MANY = Tiles(16, 64, 128), Tiles(64, 128, 256)


@triton.jit
def w8a16_kernel(
    x_ptr, codes_ptr, steps_ptr, out_ptr, num_rows, outputs, columns, turns,
    stride_x, stride_codes, stride_steps, stride_piece, stride_out,
    BY_GROUP: tl.constexpr, EVEN: tl.constexpr, COMPUTE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Program (n, m, s): BLOCK_N outputs of BLOCK_M rows over one piece of the columns."""
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    m = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    begin = tl.program_id(2) * turns
    end = tl.minimum(begin + turns, tl.cdiv(columns, BLOCK_K))
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for turn in range(begin, end):
        k = turn * BLOCK_K + tl.arange(0, BLOCK_K)
        x_mask, w_mask = (m < num_rows)[:, None], (n < outputs)[:, None]
        if not EVEN:
            x_mask, w_mask = x_mask & (k < columns)[None, :], w_mask & (k < columns)[None, :]
        x = tl.load(x_ptr + m[:, None] * stride_x + k[None, :], mask=x_mask, other=0.0)
        codes = tl.load(codes_ptr + n[:, None] * stride_codes + k[None, :], mask=w_mask, other=128)
        weights = codes.to(tl.float32) - 128.0
        if BY_GROUP:
            g = turn * (BLOCK_K // GROUP) + tl.arange(0, BLOCK_K // GROUP)
            g_mask = (n < outputs)[:, None] & (g * GROUP < columns)[None, :]
            step = tl.load(steps_ptr + n[:, None] * stride_steps + g[None, :], g_mask, other=0.0)
            groups = tl.reshape(weights, (BLOCK_N, BLOCK_K // GROUP, GROUP))
            groups = groups * step.to(tl.float32)[:, :, None]
            weights = tl.reshape(groups, (BLOCK_N, BLOCK_K))
        total = tl.dot(x.to(COMPUTE), tl.trans(weights.to(COMPUTE)), total, input_precision="ieee")
    if not BY_GROUP:
        step = tl.load(steps_ptr + n * stride_steps, mask=n < outputs, other=0.0)
        total = total * step.to(tl.float32)[None, :]
    out = out_ptr + tl.program_id(2).to(tl.int64) * stride_piece
    out_mask = (m < num_rows)[:, None] & (n < outputs)[None, :]
    tl.store(out + m[:, None] * stride_out + n[None, :], total, mask=out_mask)


@triton.jit
def w4a16_kernel(
    x_ptr, codes_ptr, steps_ptr, starts_ptr, out_ptr, num_rows, outputs, columns, turns,
    stride_x, stride_codes, stride_steps, stride_piece, stride_out,
    EVEN: tl.constexpr, COMPUTE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Program (n, m, s), as above. A byte has columns 32 g + i (low) and 32 g + 16 + i (high).

    So two products are taken, of low halves and of high ones, each with columns of x of its own.
    """
    HALF: tl.constexpr = GROUP // 2
    BYTES: tl.constexpr = BLOCK_K // 2
    GROUPS: tl.constexpr = BLOCK_K // GROUP
    n = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    m = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    begin = tl.program_id(2) * turns
    end = tl.minimum(begin + turns, tl.cdiv(columns, BLOCK_K))
    byte = tl.arange(0, BYTES)
    low_column = byte // HALF * GROUP + byte % HALF
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for turn in range(begin, end):
        k = turn * BLOCK_K + low_column
        b = turn * BYTES + byte
        g = turn * GROUPS + tl.arange(0, GROUPS)
        x_mask, w_mask, g_mask = (
            (m < num_rows)[:, None],
            (n < outputs)[:, None],
            (n < outputs)[:, None],
        )
        if not EVEN:
            x_mask, w_mask = x_mask & (k < columns)[None, :], w_mask & (b * 2 < columns)[None, :]
            g_mask = g_mask & (g * GROUP < columns)[None, :]
        x_at = x_ptr + m[:, None] * stride_x + k[None, :]
        x_low = tl.load(x_at, mask=x_mask, other=0.0).to(COMPUTE)
        x_high = tl.load(x_at + HALF, mask=x_mask, other=0.0).to(COMPUTE)
        codes = tl.load(codes_ptr + n[:, None] * stride_codes + b[None, :], mask=w_mask, other=0)
        g_at = n[:, None] * stride_steps + g[None, :]
        step = tl.load(steps_ptr + g_at, mask=g_mask, other=0.0).to(tl.float32)[:, :, None]
        start = tl.load(starts_ptr + g_at, mask=g_mask, other=0.0).to(tl.float32)[:, :, None]
        halves = tl.reshape(codes, (BLOCK_N, GROUPS, HALF))
        low = tl.reshape((halves & 15).to(tl.float32) * step + start, (BLOCK_N, BYTES))
        high = tl.reshape((halves >> 4).to(tl.float32) * step + start, (BLOCK_N, BYTES))
        total = tl.dot(x_low, tl.trans(low.to(COMPUTE)), total, input_precision="ieee")
        total = tl.dot(x_high, tl.trans(high.to(COMPUTE)), total, input_precision="ieee")
    out = out_ptr + tl.program_id(2).to(tl.int64) * stride_piece
    out_mask = (m < num_rows)[:, None] & (n < outputs)[None, :]
    tl.store(out + m[:, None] * stride_out + n[None, :], total, mask=out_mask)


def quantized_linear(
    x: Tensor,
    codes: Tensor,
    steps: Tensor,
    starts: Tensor | None = None,
    *,
    splits: int | None = None,
) -> Tensor:
    """`x W^T`, summed up in fp32.

    Args:
        x: [R, I] fp32, fp16 or bf16; R may be strided.
        codes: uint8 [O, I] (8 bits) or [O, I / 2] (4 bits), see `QuantizedWeight`.
        steps: [O, G]; float32 with G = 1, or float16 with G = I / 32.
        starts: like steps, for 4 bits.
        splits: pieces that the columns are cut into; by default as many as fill the GPU.

    Returns:
        [R, O] in x's dtype. (Weights are rounded to that dtype, where they have groups.)

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    check_shape("x", x, None, None)
    rows, columns = x.shape
    check_shape("codes", codes, None, columns if starts is None else columns // 2)
    outputs = len(codes)
    by_group = steps.dtype == torch.float16
    kernel = w8a16_kernel if starts is None else w4a16_kernel
    check_tensors(kernel, x, codes=codes, steps=steps, starts=starts)
    if (by_group or starts is not None) and columns % GROUP:
        raise ValueError(f"x has {columns} columns, must have a multiple of {GROUP}: groups")
    for name, tensor in {"steps": steps, "starts": starts}.items():
        if tensor is not None:
            check_shape(name, tensor, outputs, columns // GROUP if by_group else 1)
            check_dtype(name, tensor, torch.float16, torch.float32)
            check_rows_dense(name, tensor)
    check_dtype("x", x, *TRITON_TYPES)
    check_dtype("codes", codes, torch.uint8)
    check_rows_dense("x", x)
    check_rows_dense("codes", codes)
    if not rows or not outputs:
        return torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    tiles = FEW if rows <= FEW.rows else MANY
    grid = (triton.cdiv(outputs, tiles.outputs), triton.cdiv(rows, tiles.rows))
    if splits is None:
        splits = _pieces(grid[0] * grid[1], columns, multiprocessors(x.device))
    block = BLOCK_K[8 if starts is None else 4]
    turns = triton.cdiv(triton.cdiv(columns, splits), block)
    splits = triton.cdiv(columns, turns * block)
    kind = x.dtype if splits == 1 else torch.float32
    out = torch.empty(splits, rows, outputs, dtype=kind, device=x.device)
    options = {"BY_GROUP": by_group} if starts is None else {}
    weights = (codes, steps) if starts is None else (codes, steps, starts)
    kernel[(*grid, splits)](
        x, *weights, out, rows, outputs, columns, turns,
        x.stride(0), codes.stride(0), steps.stride(0), out.stride(0), out.stride(1),
        **options, EVEN=columns % block == 0, COMPUTE=compute_type(kernel, x.dtype),
        BLOCK_M=tiles.rows, BLOCK_N=tiles.outputs, BLOCK_K=block, GROUP=GROUP,
        num_warps=warps(tiles.threads, target_of(x.device)), num_stages=3, enable_fp_fusion=True,
    )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0).to(x.dtype)


def _pieces(programs: int, columns: int, processors: int) -> int:
    """How many pieces the columns are cut into, so that all multiprocessors have work."""
    wanted = triton.cdiv(PROGRAMS * processors, programs)
    return max(1, min(wanted, columns // LEAST_PIECE))


def quantized_linear_reference(
    x: Tensor, codes: Tensor, steps: Tensor, starts: Tensor | None = None
) -> Tensor:
    """What `quantized_linear` computes, in x's dtype: give it float64."""
    from minillm_serve.models.quantized import QuantizedWeight

    return x @ QuantizedWeight(codes, steps, starts).expand().to(x.dtype).T


def compile_cases() -> list[CompileCase]:
    """A decode step and a prefill of each kind, in the shapes of Llama-3-8B's projections."""
    return [
        CompileCase(
            name=f"{'w4a16' if bits == 4 else 'w8a16'} bf16 rows {tiles.rows}",
            kernel=w4a16_kernel if bits == 4 else w8a16_kernel,
            target=target,
            pointers={
                "x_ptr": "bf16",
                "codes_ptr": "u8",
                "steps_ptr": "fp16" if bits == 4 else "fp32",
                **({"starts_ptr": "fp16"} if bits == 4 else {}),
                "out_ptr": "bf16",
            },
            scalars={name: "i32" for name in ("num_rows", "outputs", "columns", "turns")},
            constexprs={
                **({} if bits == 4 else {"BY_GROUP": False}),
                "EVEN": True,
                "COMPUTE": tl.bfloat16,
                "BLOCK_M": tiles.rows,
                "BLOCK_N": tiles.outputs,
                "BLOCK_K": BLOCK_K[bits],
                "GROUP": GROUP,
            },
            num_warps=warps(tiles.threads, target),
            num_stages=3,
            uses_dot=True,
            index_loads=0 if bits == 8 else 2,  # a row's four steps, and starts, by two threads
        )
        for target in TARGETS
        for bits in (8, 4)
        for tiles in (FEW, MANY)
    ]
