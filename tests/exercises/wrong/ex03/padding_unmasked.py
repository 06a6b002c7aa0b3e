"""Pads a head dim with what lies behind it in memory.

Reason: beyond D there must be 0
"""
# ruff: noqa: F821, N803


@triton.jit
def load_tile(
    cache_ptr, block, kept, stride_block, stride_slot,
    P: tl.constexpr, D: tl.constexpr, D_PADDED: tl.constexpr,
):  # fmt: skip
    slot, d = tl.arange(0, P), tl.arange(0, D_PADDED)
    start = cache_ptr + block.to(tl.int64) * stride_block
    pointers = start + slot[:, None] * stride_slot + d[None, :]
    return tl.load(pointers, mask=(slot < kept)[:, None], other=0.0).to(tl.float32)
