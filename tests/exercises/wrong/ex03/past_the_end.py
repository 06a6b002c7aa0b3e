"""Gives positions past the end their score of 0, and so a weight.

Reason: a position past the end has a weight
"""
# ruff: noqa: F821, N803


@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lens_ptr, out_ptr, scale,
    stride_row, stride_q_head, stride_block, stride_head, stride_slot, stride_table,
    P: tl.constexpr, D: tl.constexpr, D_PADDED: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    kv_head, sequence = tl.program_id(0), tl.program_id(1)
    g, d = tl.arange(0, ROWS), tl.arange(0, D_PADDED)
    heads = kv_head * GROUP + g
    inside = (g < GROUP)[:, None] & (d < D)[None, :]
    highest, total = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    acc, length = tl.zeros([ROWS, D_PADDED], tl.float32), tl.load(lens_ptr + sequence)
    rows = sequence * stride_row + heads[:, None] * stride_q_head + d[None, :]
    q = tl.load(q_ptr + rows, mask=inside, other=0.0).to(tl.float32)
    k_ptr, v_ptr = k_ptr + kv_head * stride_head, v_ptr + kv_head * stride_head
    for start in range(0, length, P):
        block, kept = tl.load(table_ptr + sequence * stride_table + start // P), length - start
        k = load_tile(k_ptr, block, kept, stride_block, stride_slot, P, D, D_PADDED)
        v = load_tile(v_ptr, block, kept, stride_block, stride_slot, P, D, D_PADDED)
        scores = tl.dot(q, tl.trans(k)) * scale
        highest, total, acc = fold(scores, v, highest, total, acc)
    tl.store(out_ptr + rows, acc / total[:, None], mask=inside)
