"""Stages 4 and 5 of the decode kernel: a program for each KV head, or for each piece of one."""

# mypy: allow-untyped-defs, allow-incomplete-defs
# ruff: noqa: N803 (compile-time arguments are in capitals)

import triton
import triton.language as tl


@triton.jit
def attend_blocks(
    q_ptr, k_ptr, v_ptr, table_ptr, begin, end, scale, stride_q_head,
    stride_k_block, stride_k_slot, stride_v_block, stride_v_slot,
    D: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Attends the GROUP query heads of one KV head to positions begin .. end - 1.

    Pointers are those of this sequence and this KV head; `begin` is a multiple of P.

    Returns:
        Highest score and sum of weights, [ROWS]; weighted sum of values, [ROWS, D]; all float32.
    """
    d, slot, g = tl.arange(0, D), tl.arange(0, P), tl.arange(0, ROWS)
    k_tile = k_ptr + slot[:, None] * stride_k_slot + d[None, :]
    v_tile = v_ptr + slot[:, None] * stride_v_slot + d[None, :]
    q_tile = q_ptr + g[:, None] * stride_q_head + d[None, :]
    q = tl.load(q_tile, mask=(g < GROUP)[:, None], other=0.0)

    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    for start in range(begin, end, P):
        mask = start + slot < end
        block = tl.load(table_ptr + start // P).to(tl.int64)
        k = tl.load(k_tile + block * stride_k_block, mask=mask[:, None], other=0.0)
        v = tl.load(v_tile + block * stride_v_block, mask=mask[:, None], other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale  # [ROWS, P]
        scores = tl.where(mask[None, :], scores, float("-inf"))

        top = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp(highest - top)
        weights = tl.exp(scores - top[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        highest = top
    return highest, total, acc


@triton.jit
def group_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, o_ptr, scale,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_table, stride_o_row, stride_o_head,
    D: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Stage 4: the query heads of a group are rows of one tile; a key is read once for all."""
    kv_head, sequence = tl.program_id(0), tl.program_id(1)
    _, total, acc = attend_blocks(
        q_ptr + sequence * stride_q_row + kv_head * GROUP * stride_q_head,
        k_ptr + kv_head * stride_k_head, v_ptr + kv_head * stride_v_head,
        table_ptr + sequence * stride_table, 0, tl.load(lens_ptr + sequence), scale, stride_q_head,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, D, P, GROUP, ROWS,
    )  # fmt: skip
    d, g = tl.arange(0, D), tl.arange(0, ROWS)
    o_ptr += sequence * stride_o_row + kv_head * GROUP * stride_o_head
    o = acc / total[:, None]
    tl.store(o_ptr + g[:, None] * stride_o_head + d[None, :], o, mask=(g < GROUP)[:, None])


@triton.jit
def split_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, o_ptr, lse_ptr, scale, num_splits,
    stride_q_row, stride_q_head,
    stride_k_block, stride_k_head, stride_k_slot,
    stride_v_block, stride_v_head, stride_v_slot,
    stride_table, stride_o_split, stride_o_row, stride_o_head, stride_lse_split, stride_lse_row,
    D: tl.constexpr, P: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Stage 5: a context in pieces of whole blocks, a program each (Flash-Decoding, 2023)."""
    kv_head, sequence, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lens_ptr + sequence)
    piece = tl.cdiv(tl.cdiv(length, P), num_splits) * P
    highest, total, acc = attend_blocks(
        q_ptr + sequence * stride_q_row + kv_head * GROUP * stride_q_head,
        k_ptr + kv_head * stride_k_head, v_ptr + kv_head * stride_v_head,
        table_ptr + sequence * stride_table,
        split * piece, tl.minimum(split * piece + piece, length), scale, stride_q_head,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, D, P, GROUP, ROWS,
    )  # fmt: skip
    # An empty piece has seen nothing: its lse is -inf, so that it weighs nothing.
    total = tl.where(total == 0.0, 1.0, total)
    d, g = tl.arange(0, D), tl.arange(0, ROWS)
    heads = kv_head * GROUP + g
    o_ptr += split.to(tl.int64) * stride_o_split + sequence * stride_o_row
    lse_ptr += split * stride_lse_split + sequence * stride_lse_row
    o_tile = o_ptr + heads[:, None] * stride_o_head + d[None, :]
    tl.store(o_tile, acc / total[:, None], mask=(g < GROUP)[:, None])
    tl.store(lse_ptr + heads, highest + tl.log(total), mask=g < GROUP)


@triton.jit
def combine_kernel(
    part_o_ptr, part_lse_ptr, o_ptr, num_splits,
    stride_part_split, stride_part_row, stride_part_head, stride_lse_split, stride_lse_row,
    stride_o_row, stride_o_head,
    D: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Stage 5, second launch: the mean of the pieces' results, each weighted by e^lse."""
    head, sequence = tl.program_id(0), tl.program_id(1)
    split, d = tl.arange(0, SPLITS), tl.arange(0, D)
    part_o_ptr += sequence * stride_part_row + head * stride_part_head
    part_lse_ptr += sequence * stride_lse_row + head
    there = split < num_splits
    lse = tl.load(part_lse_ptr + split * stride_lse_split, mask=there, other=float("-inf"))
    o_tile = part_o_ptr + split[:, None].to(tl.int64) * stride_part_split + d[None, :]
    o = tl.load(o_tile, mask=there[:, None], other=0.0)
    weights = tl.exp(lse - tl.max(lse))
    mean = tl.sum(weights[:, None] * o, axis=0) / tl.sum(weights)
    tl.store(o_ptr + sequence * stride_o_row + head * stride_o_head + d, mean)
