"""Kernels that call a learner's device function, so that it can be tried by itself."""

# mypy: allow-untyped-defs, allow-incomplete-defs
# ruff: noqa: N803 (compile-time arguments are in capitals)

import triton
import triton.language as tl


@triton.jit
def tile_driver(
    cache_ptr, blocks_ptr, kept_ptr, out_ptr,
    stride_block, stride_head, stride_slot, stride_out_tile, stride_out_head,
    P: tl.constexpr, D: tl.constexpr, D_PADDED: tl.constexpr, load_tile: tl.constexpr,
):  # fmt: skip
    """Program (i, h): KV head h of the i-th block, written as it was loaded."""
    i, head = tl.program_id(0), tl.program_id(1)
    block, kept = tl.load(blocks_ptr + i), tl.load(kept_ptr + i)
    head_ptr = cache_ptr + head * stride_head
    tile = load_tile(head_ptr, block, kept, stride_block, stride_slot, P, D, D_PADDED)
    slot, d = tl.arange(0, P), tl.arange(0, D_PADDED)
    out = out_ptr + i * stride_out_tile + head * stride_out_head
    tl.store(out + slot[:, None] * D_PADDED + d[None, :], tile)


@triton.jit
def fold_driver(
    scores_ptr, values_ptr, out_ptr, lse_ptr, tiles,
    ROWS: tl.constexpr, P: tl.constexpr, D_PADDED: tl.constexpr, fold: tl.constexpr,
):  # fmt: skip
    """One program: folds all tiles of dense scores [tiles, ROWS, P] and values [tiles, P, D]."""
    row, slot, d = tl.arange(0, ROWS), tl.arange(0, P), tl.arange(0, D_PADDED)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D_PADDED], tl.float32)
    for i in range(0, tiles):
        scores = tl.load(scores_ptr + i * ROWS * P + row[:, None] * P + slot[None, :])
        values = tl.load(values_ptr + i * P * D_PADDED + slot[:, None] * D_PADDED + d[None, :])
        highest, total, acc = fold(scores, values, highest, total, acc)
    tl.store(out_ptr + row[:, None] * D_PADDED + d[None, :], acc / total[:, None])
    tl.store(lse_ptr + row, highest + tl.log(total))
