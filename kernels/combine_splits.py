"""Merging of attention that was worked out in pieces, in Triton."""

import triton
import triton.language as tl
from minillm_serve.kernels.attention_launch import padded
from minillm_serve.kernels.attention_tiles import only_row_of
from torch import Tensor

#: Pieces that are read at once.
CHUNK = 16


@triton.jit(do_not_specialize=["num_splits", "stride_part_lse_split"])
def combine_kernel(
    part_o_ptr, part_lse_ptr, starts_ptr, o_ptr, lse_ptr, num_splits,
    stride_part_split, stride_part_sequence, stride_part_head,
    stride_part_lse_split, stride_lse_row, stride_o_row, stride_o_head,
    D: tl.constexpr, D_PADDED: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Program (h, s): merges what the pieces of query head h of sequence s found.

    Softmax over a union is the mean of the softmaxes, weighted by e^lse.
    """
    head = tl.program_id(0).to(tl.int64)
    sequence = tl.program_id(1).to(tl.int64)
    row = only_row_of(starts_ptr, sequence)
    if row < 0:
        return
    d = tl.arange(0, D_PADDED)
    part_o_ptr += sequence * stride_part_sequence + head * stride_part_head
    part_lse_ptr += sequence * stride_lse_row + head
    highest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    acc = tl.zeros([D_PADDED], tl.float32)
    for start in range(0, num_splits, CHUNK):
        splits = (start + tl.arange(0, CHUNK)).to(tl.int64)
        lse = tl.load(
            part_lse_ptr + splits * stride_part_lse_split,
            mask=splits < num_splits,
            other=float("-inf"),
        )
        # What an empty piece holds is not looked at: nobody may have written it.
        o = tl.load(
            part_o_ptr + splits[:, None] * stride_part_split + d[None, :],
            mask=(lse > float("-inf"))[:, None] & (d < D)[None, :],
            other=0.0,
        )
        top = tl.maximum(highest, tl.max(lse, axis=0))
        base = tl.where(top == float("-inf"), 0.0, top)
        shrink, weights = tl.exp(highest - base), tl.exp(lse - base)
        total = total * shrink + tl.sum(weights, axis=0)
        acc = acc * shrink + tl.sum(weights[:, None] * o, axis=0)
        highest = top
    total = tl.where(total == 0.0, 1.0, total)
    o_ptr += row * stride_o_row + head * stride_o_head
    tl.store(o_ptr + d, acc / total, mask=d < D)
    tl.store(lse_ptr + row * stride_lse_row + head, highest + tl.log(total))


def combine_splits(
    part_o: Tensor, part_lse: Tensor, query_start_loc: Tensor | None, out: Tensor, lse: Tensor
) -> None:
    """Merges the pieces of each sequence's only row.

    Args:
        part_o: [splits, S, H, D] float32, contiguous; attention of each piece by itself, and
            anything for an empty one.
        part_lse: [splits, S, H] float32, contiguous; -inf for an empty piece.
        query_start_loc: [S+1] int32, or None where row s is sequence s; see `paged_decode`.
        out: [T, H, D], written.
        lse: [T, H] float32, contiguous, written.
    """
    num_splits, sequences, heads, dim = part_o.shape
    combine_kernel[(heads, sequences)](
        part_o, part_lse, query_start_loc, out, lse, num_splits,
        *part_o.stride()[:3], part_lse.stride(0), lse.stride(0), *out.stride()[:2],
        D=dim, D_PADDED=padded(dim), CHUNK=CHUNK, num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
