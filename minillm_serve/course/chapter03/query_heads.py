"""Stages 1 to 3 of the decode kernel: a program for each query head of each sequence.

Caches are `[num_blocks, H_kv, P, D]`; every kernel takes the same arguments and writes `[S, H, D]`.
Block ids become int64 before they are multiplied: a cache of over 2^31 elements is normal.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# ruff: noqa: N803 (compile-time arguments are in capitals)

import triton
import triton.language as tl


@triton.jit
def loop_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, o_ptr, scale,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_table, stride_o_row, stride_o_head,
    D: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Stage 1: the naive loop, one position at a time; all keys are read twice."""
    head, sequence = tl.program_id(0), tl.program_id(1)
    length = tl.load(lens_ptr + sequence)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + sequence * stride_q_row + head * stride_q_head + d).to(tl.float32)
    k_ptr += head // GROUP * stride_k_head
    v_ptr += head // GROUP * stride_v_head
    table_ptr += sequence * stride_table

    highest = float("-inf")
    for position in range(0, length):
        block = tl.load(table_ptr + position // P).to(tl.int64)
        k = tl.load(k_ptr + block * stride_k_block + position % P * stride_k_slot + d)
        highest = tl.maximum(highest, tl.sum(q * k.to(tl.float32)) * scale)

    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for position in range(0, length):
        block = tl.load(table_ptr + position // P).to(tl.int64)
        k = tl.load(k_ptr + block * stride_k_block + position % P * stride_k_slot + d)
        v = tl.load(v_ptr + block * stride_v_block + position % P * stride_v_slot + d)
        weight = tl.exp(tl.sum(q * k.to(tl.float32)) * scale - highest)
        total += weight
        acc += weight * v.to(tl.float32)
    tl.store(o_ptr + sequence * stride_o_row + head * stride_o_head + d, acc / total)


@triton.jit
def block_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, o_ptr, scale,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_table, stride_o_row, stride_o_head,
    D: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Stage 2: a whole block at a time, as a tile of pointers; a mask ends the last one."""
    head, sequence = tl.program_id(0), tl.program_id(1)
    length = tl.load(lens_ptr + sequence)
    d, slot = tl.arange(0, D), tl.arange(0, P)
    q = tl.load(q_ptr + sequence * stride_q_row + head * stride_q_head + d).to(tl.float32)
    k_tile = k_ptr + head // GROUP * stride_k_head + slot[:, None] * stride_k_slot + d[None, :]
    v_tile = v_ptr + head // GROUP * stride_v_head + slot[:, None] * stride_v_slot + d[None, :]
    table_ptr += sequence * stride_table

    highest = float("-inf")
    for start in range(0, length, P):
        mask = start + slot < length
        block = tl.load(table_ptr + start // P).to(tl.int64)
        k = tl.load(k_tile + block * stride_k_block, mask=mask[:, None], other=0.0)
        scores = tl.sum(q[None, :] * k.to(tl.float32), axis=1) * scale
        highest = tl.maximum(highest, tl.max(tl.where(mask, scores, float("-inf"))))

    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for start in range(0, length, P):
        mask = start + slot < length
        block = tl.load(table_ptr + start // P).to(tl.int64)
        k = tl.load(k_tile + block * stride_k_block, mask=mask[:, None], other=0.0)
        v = tl.load(v_tile + block * stride_v_block, mask=mask[:, None], other=0.0)
        scores = tl.sum(q[None, :] * k.to(tl.float32), axis=1) * scale
        weights = tl.exp(tl.where(mask, scores, float("-inf")) - highest)
        total += tl.sum(weights)
        acc += tl.sum(weights[:, None] * v.to(tl.float32), axis=0)
    tl.store(o_ptr + sequence * stride_o_row + head * stride_o_head + d, acc / total)


@triton.jit
def online_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, o_ptr, scale,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_table, stride_o_row, stride_o_head,
    D: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Stage 3: one pass; a higher score shrinks what was summed (Milakov, Gimelshein, 2018)."""
    head, sequence = tl.program_id(0), tl.program_id(1)
    length = tl.load(lens_ptr + sequence)
    d, slot = tl.arange(0, D), tl.arange(0, P)
    q = tl.load(q_ptr + sequence * stride_q_row + head * stride_q_head + d).to(tl.float32)
    k_tile = k_ptr + head // GROUP * stride_k_head + slot[:, None] * stride_k_slot + d[None, :]
    v_tile = v_ptr + head // GROUP * stride_v_head + slot[:, None] * stride_v_slot + d[None, :]
    table_ptr += sequence * stride_table

    highest = float("-inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    for start in range(0, length, P):
        mask = start + slot < length
        block = tl.load(table_ptr + start // P).to(tl.int64)
        k = tl.load(k_tile + block * stride_k_block, mask=mask[:, None], other=0.0)
        v = tl.load(v_tile + block * stride_v_block, mask=mask[:, None], other=0.0)
        scores = tl.sum(q[None, :] * k.to(tl.float32), axis=1) * scale
        scores = tl.where(mask, scores, float("-inf"))

        top = tl.maximum(highest, tl.max(scores))
        shrink = tl.exp(highest - top)
        weights = tl.exp(scores - top)
        total = total * shrink + tl.sum(weights)
        acc = acc * shrink + tl.sum(weights[:, None] * v.to(tl.float32), axis=0)
        highest = top
    tl.store(o_ptr + sequence * stride_o_row + head * stride_o_head + d, acc / total)
