"""Draws tokens, in Triton: temperature, top-k, top-p and min-p, without sorting the vocabulary.

The reference is `minillm_serve.runtime.sampling.sampler.choose_by_torch`. For the same seed and
position the same token is drawn, unless the draw falls on a border between two that float32 blurs:

- A draw is a function of seed and position, and of nothing that ran before: see `random_numbers`.
- It picks by inversion: the first token, in order of id, at which the running sum of weights passes
  a random share of their total. The sums are exact, see `sample_filters`.
- Of equal weights the lower ids are kept, and of equal logits the lowest is the likeliest.

Three launches: `survey` finds the highest logit of each part of a row and `weigh` turns logits into
weights, both with a program for each part; `choose` has one program a row.
"""

from typing import Any

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
    next_power_of_2,
    target_of,
    warps,
)
from minillm_serve.kernels.random_numbers import uniform
from minillm_serve.kernels.sample_filters import find_border, keep, whole
from torch import Tensor

#: Logits in a part of a row, and threads that share it: 16 each, in loads of 16 bytes.
PART, THREADS = 8192, 512
#: What a row gets that holds NaN or infinity, or in which no token is possible.
NO_TOKEN = -1
#: What a draw is told of each row.
PER_ROW = {
    "temperature": torch.float32, "top_k": torch.int32, "top_p": torch.float64,
    "min_p": torch.float64, "seeds": torch.int64, "positions": torch.int64,
}  # fmt: skip


@triton.jit
def survey_kernel(logits_ptr, tops_ptr, firsts_ptr, stride_logits, V: tl.constexpr,
                  PART: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """Program (r, p): the highest logit of part p of row r, and the lowest id that has it.

    NaN if the part holds any: whether a maximum passes over NaN is the machine's choice.
    """
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = part * PART + tl.arange(0, PART)
    logits_ptr += row * stride_logits
    x = tl.load(logits_ptr + i, mask=i < V, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    broken = tl.max((x != x).to(tl.int32), axis=0)
    tl.store(tops_ptr + row * PARTS + part, tl.where(broken == 1, float("nan"), top))
    tl.store(firsts_ptr + row * PARTS + part, tl.min(tl.where(x == top, i, V), axis=0))


@triton.jit
def find_highest(tops_ptr, firsts_ptr, row, V: tl.constexpr, PART: tl.constexpr,
                 PARTS: tl.constexpr):  # fmt: skip
    """A row's highest logit, the lowest id that has it, and whether it is a finite number."""
    part = tl.arange(0, PARTS)
    is_part = part < tl.cdiv(V, PART)
    tops = tl.load(tops_ptr + row * PARTS + part, mask=is_part, other=float("-inf"))
    firsts = tl.load(firsts_ptr + row * PARTS + part, mask=is_part, other=V)
    top = tl.max(tops, axis=0)
    broken = tl.max((tops != tops).to(tl.int32), axis=0)
    sound = (broken == 0) & (tl.abs(top) < float("inf"))
    return top, tl.min(tl.where(tops == top, firsts, V), axis=0), sound


@triton.jit
def argmax_kernel(tops_ptr, firsts_ptr, out_ptr, V: tl.constexpr, PART: tl.constexpr,
                  PARTS: tl.constexpr, NO_TOKEN: tl.constexpr):  # fmt: skip
    """Program r: the likeliest token of row r."""
    row = tl.program_id(0).to(tl.int64)
    _, token, sound = find_highest(tops_ptr, firsts_ptr, row, V, PART, PARTS)
    tl.store(out_ptr + row, tl.where(sound, token, NO_TOKEN))


@triton.jit
def weigh_kernel(
    logits_ptr, tops_ptr, firsts_ptr, temperature_ptr, weights_ptr, masses_ptr,
    stride_logits, stride_weights,
    V: tl.constexpr, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Program (r, p): the weights of part p of row r (0 beyond the vocabulary), and their mass."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    temperature = tl.load(temperature_ptr + row)
    top, _, sound = find_highest(tops_ptr, firsts_ptr, row, V, PART, PARTS)
    if sound & (temperature > 0):
        i = part * PART + tl.arange(0, PART)
        logits_ptr += row * stride_logits
        x = tl.load(logits_ptr + i, mask=i < V, other=float("-inf")).to(tl.float32)
        # The highest goes first: at a temperature of 1e-5 the quotient itself would overflow.
        # div_rn rounds as the reference's division does: what is a tie there must be one here.
        weights = tl.exp(tl.div_rn(x - top, temperature))
        tl.store(weights_ptr + row * stride_weights + i, weights)
        tl.store(masses_ptr + row * PARTS + part, tl.sum(whole(weights, UNIT), axis=0))


@triton.jit
def choose_kernel(
    weights_ptr, masses_ptr, tops_ptr, firsts_ptr,
    temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, seeds_ptr, positions_ptr, out_ptr,
    width, stride_weights,
    V: tl.constexpr, UNIT: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    NO_TOKEN: tl.constexpr,
):  # fmt: skip
    """Program r: the token of row r."""
    row = tl.program_id(0).to(tl.int64)
    _, token, sound = find_highest(tops_ptr, firsts_ptr, row, V, PART, PARTS)
    if sound & (tl.load(temperature_ptr + row) > 0):
        weights_ptr += row * stride_weights
        part = tl.arange(0, PARTS)
        masses_ptr += row * PARTS
        masses = tl.load(masses_ptr + part, mask=part < tl.cdiv(V, PART), other=0)
        ties_before = tl.zeros([PARTS], tl.int64)
        least = tl.full([], 0.0, tl.float32)
        room = tl.full([], V, tl.int64)
        top_k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row)
        min_p = tl.load(min_p_ptr + row)
        if ((top_k > 0) & (top_k < V)) | (top_p < 1) | (min_p > 0):
            mass = tl.sum(masses, axis=0)
            least, room = find_border(weights_ptr, width, mass, top_k, top_p, min_p, V, UNIT, PART)
            masses, ties_before = keep(weights_ptr, width, least, room, UNIT, PART, PARTS)

        # A random share of the mass. First the part in which the running sum passes it ...
        total = tl.sum(masses, axis=0)
        share = uniform(tl.load(seeds_ptr + row), tl.load(positions_ptr + row))
        target = tl.minimum((share * total.to(tl.float64)).to(tl.int64), total - 1)
        chosen = tl.sum((tl.cumsum(masses, axis=0) <= target).to(tl.int32), axis=0)
        target -= tl.sum(tl.where(part < chosen, masses, 0), axis=0)
        room -= tl.sum(tl.where(part == chosen, ties_before, 0), axis=0)

        # ... then the token.
        i = chosen * PART + tl.arange(0, PART)
        weights = tl.load(weights_ptr + i)
        is_tie = weights == least
        kept = (weights > least) | (is_tie & (tl.cumsum(is_tie.to(tl.int32), axis=0) <= room))
        running = tl.cumsum(tl.where(kept, whole(weights, UNIT), 0), axis=0)
        token = tl.min(tl.where(running > target, i, V), axis=0)
    tl.store(out_ptr + row, tl.where(sound, token, NO_TOKEN))


def argmax(logits: Tensor, out: Tensor | None = None) -> Tensor:
    """The likeliest token of each row, of equals the lowest id.

    Args:
        logits: [R, V]; R may be strided.
        out: [R] int64, written. A new tensor if None.

    Returns:
        out; NO_TOKEN where the highest logit is not a finite number.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    out = _prepare(logits, out)
    if len(out):
        tops, firsts = _survey(logits)
        argmax_kernel[(len(out),)](
            tops, firsts, out, **_constants(logits.shape[1], "V", "PART", "PARTS", "NO_TOKEN"),
            num_warps=1, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    seeds: Tensor,
    positions: Tensor,
    out: Tensor | None = None,
) -> Tensor:
    """Draws one token a row. No row depends on another, and nothing is read back from the device.

    Args:
        logits: [R, V]; R may be strided. -inf excludes a token.
        temperature: [R] float32; 0 takes the likeliest token, without a draw.
        top_k: [R] int32; 0, -1, or V and more keep all.
        top_p: [R] float64, from 0 to 1.
        min_p: [R] float64, from 0 to 1.
        seeds: [R] int64; see `random_numbers.wrap_seed`.
        positions: [R] int64, how many tokens the row's sequence has.
        out: [R] int64, written. A new tensor if None.

    Returns:
        out; NO_TOKEN where the highest logit is not a finite number.

    Raises:
        ValueError: dtype, shape or layout do not fit.
        RuntimeError: the kernel cannot run on this device.
    """
    out = _prepare(logits, out)
    per_row = (temperature, top_k, top_p, min_p, seeds, positions)
    for (name, dtype), tensor in zip(PER_ROW.items(), per_row, strict=True):
        check_tensors(choose_kernel, logits, **{name: tensor})
        check_shape(name, tensor, len(logits))
        check_dtype(name, tensor, dtype)
        check_rows_dense(name, tensor)
    if not len(out):
        return out
    (rows, vocab), parts = logits.shape, triton.cdiv(logits.shape[1], PART)
    num_warps = warps(THREADS, target_of(logits.device))
    tops, firsts = _survey(logits)
    weights = logits.new_empty(rows, parts * PART, dtype=torch.float32)
    masses = torch.empty_like(tops, dtype=torch.int64)
    weigh_kernel[(rows, parts)](
        logits, tops, firsts, temperature, weights, masses, logits.stride(0), weights.stride(0),
        **_constants(vocab, "V", "UNIT", "PART", "PARTS"),
        num_warps=num_warps, enable_fp_fusion=True,
    )  # fmt: skip
    choose_kernel[(rows,)](
        weights, masses, tops, firsts, *per_row, out, weights.shape[1], weights.stride(0),
        **_constants(vocab, "V", "UNIT", "PART", "PARTS", "NO_TOKEN"),
        num_warps=num_warps, enable_fp_fusion=True,
    )  # fmt: skip
    return out


def _constants(vocab: int, *names: str) -> dict[str, float]:
    """Compile-time arguments: all are the vocabulary's, so that no batch compiles anything anew."""
    constants = {
        "V": vocab,
        # So many units to a weight of 1 that V of them stay below 2^62.
        "UNIT": float(2**62 // next_power_of_2(vocab)),
        "PART": PART,
        "PARTS": next_power_of_2(triton.cdiv(vocab, PART)),
        "NO_TOKEN": NO_TOKEN,
    }
    return {name: constants[name] for name in names}


def _prepare(logits: Tensor, out: Tensor | None) -> Tensor:
    check_shape("logits", logits, None, None)
    check_dtype("logits", logits, *TRITON_TYPES)
    check_rows_dense("logits", logits)
    if logits.shape[1] < 1:
        raise ValueError("logits has shape [R, 0]: there is no token to choose")
    out = logits.new_empty(len(logits), dtype=torch.int64) if out is None else out
    check_tensors(survey_kernel, logits, out=out)
    check_shape("out", out, len(logits))
    check_dtype("out", out, torch.int64)
    check_rows_dense("out", out)
    return out


def _survey(logits: Tensor) -> tuple[Tensor, Tensor]:
    rows, vocab = logits.shape
    parts = triton.cdiv(vocab, PART)
    tops = logits.new_empty(rows, next_power_of_2(parts), dtype=torch.float32)
    firsts = torch.empty_like(tops, dtype=torch.int32)
    survey_kernel[(rows, parts)](
        logits, tops, firsts, logits.stride(0), **_constants(vocab, "V", "PART", "PARTS"),
        num_warps=warps(THREADS, target_of(logits.device)), enable_fp_fusion=True,
    )  # fmt: skip
    return tops, firsts


POINTERS = {
    "logits_ptr": "bf16", "tops_ptr": "fp32", "firsts_ptr": "i32", "weights_ptr": "fp32",
    "masses_ptr": "i64", "temperature_ptr": "fp32", "top_k_ptr": "i32", "top_p_ptr": "fp64",
    "min_p_ptr": "fp64", "seeds_ptr": "i64", "positions_ptr": "i64", "out_ptr": "i64",
}  # fmt: skip


def compile_cases() -> list[CompileCase]:
    """The vocabularies of SmolLM2 and Qwen3."""
    return [
        _compile_case(target, vocab, kernel)
        for target in TARGETS
        for vocab in (49152, 151936)
        for kernel in (survey_kernel, argmax_kernel, weigh_kernel, choose_kernel)
    ]


def _compile_case(target: str, vocab: int, kernel: Any) -> CompileCase:
    return CompileCase(
        name=f"sample {kernel.__name__.removesuffix('_kernel')} {vocab}",
        kernel=kernel,
        target=target,
        pointers={name: kind for name, kind in POINTERS.items() if name in kernel.arg_names},
        scalars={"width": "i32"} if kernel is choose_kernel else {},
        constexprs=_constants(vocab, *filter(str.isupper, kernel.arg_names)),
        num_warps=1 if kernel is argmax_kernel else warps(THREADS, target),
        wide_loads=kernel is not argmax_kernel,  # which reads some 20 numbers
        index_loads=3,  # temperature, and what `find_highest` reads
    )
