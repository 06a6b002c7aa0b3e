"""Two sections: is each kernel right, and how fast is it?"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu import attention_work
from benchmarks.gpu.case import Case, Results, Work
from benchmarks.gpu.cases import CASES
from benchmarks.gpu.roofs import Roof, find_roof
from benchmarks.gpu.session import Session
from benchmarks.gpu.suite import run_suite
from benchmarks.gpu.timing import milliseconds

#: Largest difference from float64 that rounding explains, in shares of the largest result.
TOLERANCE = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float64: 0.0}
#: Share of tokens that may differ from the reference's: a draw may fall between two roundings.
ODD_TOKENS = 0.02
#: A kernel whose programs read what others write may be right by luck, so each runs often (B136).
REPEATS = 20


def check(session: Session) -> None:
    """Compares every kernel with float64."""
    for case in CASES:
        sizes = case.checked[:1] if session.dry else case.checked
        for dtype in case.dtypes[:1] if session.dry else case.dtypes:
            for number, size in enumerate(sizes, 1):
                name = f"{case.name}, {str(dtype).removeprefix('torch.')}, input {number}"
                session.attempt("correct", name, partial(_check_one, session, case, dtype, size))
    session.attempt("correct", "offsets beyond 2^31 elements (B140)", lambda: _far(session))
    if not session.dry:  # the rehearsal is itself one of the tests
        session.attempt("correct", "the kernels' tests", lambda: run_suite(session.left))


def _check_one(
    session: Session, case: Case, dtype: torch.dtype, size: Mapping[str, Any]
) -> dict[str, Any]:
    torch.manual_seed(0)
    work = case.build(session.device, dtype, False, **size)
    return _compare(work, 2 if session.dry else REPEATS)


def _compare(work: Work, repeats: int) -> dict[str, Any]:
    """Runs a kernel some times; all results must be the same, and right."""
    first: tuple[Tensor, ...] = ()
    for turn in range(repeats):
        work.reset()
        results = tuple(result.clone() for result in _tuple(work.ours()))
        first = first or results
        if not all(torch.equal(_bits(a), _bits(b)) for a, b in zip(first, results, strict=True)):
            raise ArithmeticError(f"run {turn + 1} gave other numbers than run 1: a race?")
    work.reset()
    error, allowed = 0.0, 0.0
    for got, want in zip(first, _tuple(work.exact()), strict=True):
        off, limit = _difference(got, want)
        if not off <= limit:  # NaN is not
            raise ArithmeticError(f"off by {off:.3g} of the largest number, allowed are {limit:g}")
        error, allowed = max(error, off), max(allowed, limit)
    return {"error": error, "remarks": [f"allowed {allowed:g}"]}


def _difference(got: Tensor, want: Tensor) -> tuple[float, float]:
    """How far off, and how far off it may be."""
    if not want.is_floating_point():
        return (got != want).double().mean().item(), ODD_TOKENS
    scale = max(want.abs().max().item(), 1e-30)
    return ((got.double() - want).abs().max() / scale).item(), TOLERANCE[got.dtype]


def _far(session: Session) -> dict[str, Any]:
    """A sequence whose blocks lie so far back that an offset of 32 bits would miss them."""
    block = 8 * 16 * 128
    blocks = 1 if session.dry else 2**31 // block + 1
    work = attention_work.decode(
        session.device,
        torch.float32 if session.dry else torch.bfloat16,
        False,
        lengths=(3, 40),
        heads=8,
        spare_blocks=blocks,
    )
    return _compare(work, 1)


def race(session: Session) -> None:
    """Times every kernel beside its floor and its peers."""
    roof = find_roof(session.device)
    for case in CASES:
        name = f"{case.name}, {case.title}"
        session.attempt("fast", name, partial(_race, session, case, roof))


def _race(session: Session, case: Case, roof: Roof) -> dict[str, Any]:
    size = case.checked[0] if session.dry else case.timed
    dtype = torch.float32 if session.dry else torch.bfloat16
    work = case.build(session.device, dtype, not session.dry, **size)
    ours = milliseconds(work.ours, session.device)
    floor = roof.floor_ms(work.num_bytes, work.flops)
    faster, remarks = {}, []
    try:
        peers = dict(work.peers())
    except Exception as error:
        peers, remarks = {}, [f"no peers: {type(error).__name__}: {error}"[:200]]
    for name, peer in peers.items():
        try:
            faster[name] = milliseconds(peer, session.device) / ours
        except Exception as error:
            remarks.append(f"{name}: {type(error).__name__}: {error}"[:200])
    share = floor / ours
    reached = case.goal.reached(share, faster)
    if session.dry:  # the times of interpreted kernels say nothing, so none is told
        return {"goal": str(case.goal), "remarks": [f"rehearsed beside {[*faster]}", *remarks]}
    return {
        "status": "ok" if reached else "missed",
        "ms": ours,
        "floor_ms": floor,
        "roof_share": share,
        "goal": str(case.goal),
        "faster_than": faster,
        "remarks": remarks,
    }


def _bits(tensor: Tensor) -> Tensor:
    """What is compared where every bit counts; NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)


def _tuple(results: Results) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
