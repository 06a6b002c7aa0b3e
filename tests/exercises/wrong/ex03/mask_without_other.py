"""Masks the load, and leaves open what the other lanes get.

Reason: leaves the lanes that are masked off undefined
"""
# ruff: noqa: F821, N803


@triton.jit
def load_tile(
    cache_ptr, block, kept, stride_block, stride_slot,
    P: tl.constexpr, D: tl.constexpr, D_PADDED: tl.constexpr,
):  # fmt: skip
    slot, d = tl.arange(0, P), tl.arange(0, D_PADDED)
    start = cache_ptr + block.to(tl.int64) * stride_block
    mask = (slot < kept)[:, None] & (d < D)[None, :]
    return tl.load(start + slot[:, None] * stride_slot + d[None, :], mask=mask).to(tl.float32)
