"""The acceptance rule of speculative decoding, in Triton.

The reference is `minillm_serve.runtime.spec.accept.accept`, which also says why the rule is right.
The same tokens come out, unless a draw falls on a border between two that float64 blurs there:

- Tests are the reference's bit for bit: products of float64.
- A token is picked by inversion: the first, in order of id, at which the running sum of what is
  left passes a random share of the total. Here these are sums of whole numbers, the same in
  whatever order they are added, so neither the tiling nor the number of threads can move a border.

Two launches: `weigh` adds up what is left to pick from, with a program for each part of the
vocabulary, and `pick` has one program a sequence. Both begin with the tests, which read two numbers
a draft: that is cheaper than to hand over what came of them. Of p and q only the row is read at
which a sequence ends, and the other rows just at their drafts.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import TARGETS, CompileCase
from minillm_serve.kernels.launch import (
    check_dtype,
    check_rows_dense,
    check_shape,
    check_tensors,
    next_power_of_2,
    target_of,
    warps,
)
from minillm_serve.kernels.sample_filters import whole
from torch import Tensor

#: Probabilities in a part of a row, and threads that share it: 16 each, in loads of 16 bytes.
PART, THREADS = 8192, 512
#: So many units to a probability of 1: what is cut off is below 1e-18, and rows fit into an int64.
UNIT = 2.0**60
#: What stands behind a row's last token.
PADDING = -1
#: Drafts and a token are handled in tiles of so many, or more if there are more.
TILE = 32


@triton.jit
def count_kept(
    p_ptr, q_ptr, drafts_ptr, lengths_ptr, draws_ptr, sequence, num_drafts,
    stride_p, stride_p_row, stride_q, stride_q_row, TILE: tl.constexpr,
):  # fmt: skip
    """How many drafts of a sequence are kept, and how many there are, both int64."""
    length = tl.load(lengths_ptr + sequence)
    i = tl.arange(0, TILE).to(tl.int64)
    drafted = i < length
    draft = tl.load(drafts_ptr + sequence * num_drafts + i, mask=drafted, other=0)
    draw = tl.load(draws_ptr + (sequence * (num_drafts + 1) + i) * 2, mask=drafted, other=0.0)
    p_at = p_ptr + sequence * stride_p + i * stride_p_row + draft
    q_at = q_ptr + sequence * stride_q + i * stride_q_row + draft
    p = tl.load(p_at, mask=drafted, other=0.0).to(tl.float64)
    q = tl.load(q_at, mask=drafted, other=0.0).to(tl.float64)
    kept = draw * q < p
    return tl.min(tl.where(drafted & (kept == 0), i, length), axis=0), length


@triton.jit(do_not_specialize=["num_drafts"])
def weigh_kernel(
    p_ptr, q_ptr, drafts_ptr, lengths_ptr, draws_ptr, masses_ptr, num_drafts,
    stride_p, stride_p_row, stride_q, stride_q_row,
    V: tl.constexpr, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Program (s, n): of part n of the row at which sequence s ends, what p has more than q, and p.

    Where no draft was refused, nothing is taken off.
    """
    sequence, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    count, length = count_kept(
        p_ptr, q_ptr, drafts_ptr, lengths_ptr, draws_ptr, sequence, num_drafts,
        stride_p, stride_p_row, stride_q, stride_q_row, TILE,
    )  # fmt: skip
    i = part * PART + tl.arange(0, PART)
    p_ptr += sequence * stride_p + count * stride_p_row
    q_ptr += sequence * stride_q + count * stride_q_row
    p = tl.load(p_ptr + i, mask=i < V, other=0.0)
    q = tl.load(q_ptr + i, mask=(i < V) & (count < length), other=0.0)
    rest = tl.sum(whole(tl.maximum(p - q, 0.0), UNIT), axis=0)
    masses_ptr += sequence * 2 * PARTS + part
    tl.store(masses_ptr, rest)
    tl.store(masses_ptr + PARTS, tl.sum(whole(p, UNIT), axis=0))


@triton.jit(do_not_specialize=["num_drafts"])
def pick_kernel(
    p_ptr, q_ptr, drafts_ptr, lengths_ptr, draws_ptr, masses_ptr, token_ids_ptr, counts_ptr,
    num_drafts, stride_p, stride_p_row, stride_q, stride_q_row,
    V: tl.constexpr, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    TILE: tl.constexpr, PADDING: tl.constexpr,
):  # fmt: skip
    """Program s: the tokens of sequence s."""
    sequence = tl.program_id(0).to(tl.int64)
    count, length = count_kept(
        p_ptr, q_ptr, drafts_ptr, lengths_ptr, draws_ptr, sequence, num_drafts,
        stride_p, stride_p_row, stride_q, stride_q_row, TILE,
    )  # fmt: skip
    part = tl.arange(0, PARTS)
    is_part = part < tl.cdiv(V, PART)
    masses_ptr += sequence * 2 * PARTS + part
    rest = tl.load(masses_ptr, mask=is_part, other=0)
    # p is nowhere above q only by rounding, where they are equal; then p says what is left.
    from_rest = tl.sum(rest, axis=0) > 0
    masses = tl.where(from_rest, rest, tl.load(masses_ptr + PARTS, mask=is_part, other=0))

    # A random share of the mass. First the part in which the running sum passes it ...
    total = tl.sum(masses, axis=0)
    share = tl.load(draws_ptr + (sequence * (num_drafts + 1) + count) * 2 + 1)
    target = tl.minimum((share * total.to(tl.float64)).to(tl.int64), total - 1)
    chosen = tl.sum((tl.cumsum(masses, axis=0) <= target).to(tl.int32), axis=0)
    target -= tl.sum(tl.where(part < chosen, masses, 0), axis=0)

    # ... then the token. (The last one, where p is no distribution: some token it must be.)
    i = chosen * PART + tl.arange(0, PART)
    p_ptr += sequence * stride_p + count * stride_p_row
    q_ptr += sequence * stride_q + count * stride_q_row
    p = tl.load(p_ptr + i, mask=i < V, other=0.0)
    q = tl.load(q_ptr + i, mask=(i < V) & (count < length) & from_rest, other=0.0)
    running = tl.cumsum(whole(tl.maximum(p - q, 0.0), UNIT), axis=0)
    token = tl.min(tl.where(running > target, i, V - 1), axis=0)

    place = tl.arange(0, TILE)
    draft = tl.load(drafts_ptr + sequence * num_drafts + place, mask=place < count, other=0)
    after = tl.where(place == count, token, PADDING)
    token_ids_ptr += sequence * (num_drafts + 1) + place
    tl.store(token_ids_ptr, tl.where(place < count, draft, after), mask=place <= num_drafts)
    tl.store(counts_ptr + sequence, count)


def accept(
    p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Tests drafts. No sequence depends on another, and nothing is read back from the device.

    Args:
        p: [S, K+1, V] float32, of the model; S and K may be strided.
        q: [S, K, V] float32, of the drafter; same.
        drafts: [S, K] int64.
        lengths: [S] int64, 0..K. What lies beyond a sequence's drafts is not looked at.
        draws: [S, K+1, 2] float64, uniform in [0, 1): the first tests, the second picks.

    Returns:
        The drafts that are kept, one token more, and PADDING: [S, K+1] int64. How many were kept:
        [S] int64.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    _check(p, q, drafts, lengths, draws)
    (size, num_drafts), vocab = drafts.shape, p.shape[2]
    token_ids, counts = drafts.new_empty(size, num_drafts + 1), drafts.new_empty(size)
    if not size:
        return token_ids, counts
    parts = triton.cdiv(vocab, PART)
    constants = _constants(vocab, num_drafts)
    masses = counts.new_empty(size, 2, int(constants["PARTS"]))
    steps = (p, q, drafts.contiguous(), lengths.contiguous(), draws.contiguous())
    strides = (*p.stride()[:2], *q.stride()[:2])
    num_warps = warps(THREADS, target_of(p.device))
    weigh_kernel[(size, parts)](
        *steps, masses, num_drafts, *strides, **constants,
        num_warps=num_warps, enable_fp_fusion=True,
    )  # fmt: skip
    pick_kernel[(size,)](
        *steps, masses, token_ids, counts, num_drafts, *strides, **constants, PADDING=PADDING,
        num_warps=num_warps, enable_fp_fusion=True,
    )  # fmt: skip
    return token_ids, counts


def _check(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> None:
    check_shape("p", p, None, None, None)
    size, rows, vocab = p.shape
    if rows < 1 or vocab < 1:
        raise ValueError(f"p has shape {list(p.shape)}: there is no token to pick")
    expected = {
        "p": (p, (size, rows, vocab), torch.float32),
        "q": (q, (size, rows - 1, vocab), torch.float32),
        "drafts": (drafts, (size, rows - 1), torch.int64),
        "lengths": (lengths, (size,), torch.int64),
        "draws": (draws, (size, rows, 2), torch.float64),
    }
    for name, (tensor, shape, dtype) in expected.items():
        check_tensors(weigh_kernel, p, **{name: tensor})
        check_shape(name, tensor, *shape)
        check_dtype(name, tensor, dtype)
    for name, tensor in {"p": p, "q": q}.items():
        check_rows_dense(name, tensor)


def _constants(vocab: int, num_drafts: int) -> dict[str, float]:
    """Compile-time arguments: no batch compiles anything anew, unless it has 32 drafts or more."""
    return {
        "V": vocab,
        "UNIT": UNIT,
        "PART": PART,
        "PARTS": next_power_of_2(triton.cdiv(vocab, PART)),
        "TILE": max(TILE, next_power_of_2(num_drafts + 1)),
    }


POINTERS = {
    "p_ptr": "fp32", "q_ptr": "fp32", "drafts_ptr": "i64", "lengths_ptr": "i64",
    "draws_ptr": "fp64", "masses_ptr": "i64", "token_ids_ptr": "i64", "counts_ptr": "i64",
}  # fmt: skip


def compile_cases() -> list[CompileCase]:
    """The vocabularies of SmolLM2 and Qwen3."""
    return [
        _compile_case(target, vocab, kernel)
        for target in TARGETS
        for vocab in (49152, 151936)
        for kernel in (weigh_kernel, pick_kernel)
    ]


def _compile_case(target: str, vocab: int, kernel: Any) -> CompileCase:
    padding = {"PADDING": PADDING} if kernel is pick_kernel else {}
    return CompileCase(
        name=f"accept {kernel.__name__.removesuffix('_kernel')} {vocab}",
        kernel=kernel,
        target=target,
        pointers={name: kind for name, kind in POINTERS.items() if name in kernel.arg_names},
        scalars={"num_drafts": "i32"},
        constexprs={**_constants(vocab, 5), **padding},
        num_warps=warps(THREADS, target),
        index_loads=9,  # tests and masses: a number each
    )
