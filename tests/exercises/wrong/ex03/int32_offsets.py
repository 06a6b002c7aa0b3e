"""Multiplies a block id of 32 bits by a stride.

Reason: does not fit into 32 bits
"""
# ruff: noqa: F821, N803


@triton.jit
def load_tile(
    cache_ptr, block, kept, stride_block, stride_slot,
    P: tl.constexpr, D: tl.constexpr, D_PADDED: tl.constexpr,
):  # fmt: skip
    slot, d = tl.arange(0, P), tl.arange(0, D_PADDED)
    start = cache_ptr + block * stride_block
    mask = (slot < kept)[:, None] & (d < D)[None, :]
    pointers = start + slot[:, None] * stride_slot + d[None, :]
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
