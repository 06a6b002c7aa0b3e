"""The canary: one small kernel whose result is known, run before any other kernel is believed.

Triton's interpreter can fail without a word (it has been seen to return zeros). And the variable
that turns it on, ``TRITON_INTERPRET=1``, is read when Triton is imported and again when a kernel is
decorated: set in between, or after, it leaves a mixture that cannot run (B134). So the canary uses
what the real kernels use (a loop with a runtime bound, masked loads beside NaN, a dot, a sum and a
maximum), and compares with numbers that plain Python worked out.
"""

import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.runtime import JITFunction

ROWS = 16  # the smallest tile side that tl.dot takes on every target
INNER = 40  # not a multiple of BLOCK: the last tile is masked
BLOCK = 16
_UNWRITTEN = -1.0

_RESTART = "Restart Python (in a notebook: Kernel > Restart Kernel) and"
_FIRST = "before the first import of triton, torch or minillm_serve"


class CanaryError(RuntimeError):
    """Triton kernels cannot be trusted here; the message says why and what to do."""


@dataclass(frozen=True)
class CanaryReport:
    """A canary that sang: where it ran and how."""

    triton_version: str
    device: str
    mode: str  # "interpreted" or "compiled"


@triton.jit
def canary_kernel(a_ptr, b_ptr, out_ptr, inner, SIDE: tl.constexpr, STEP: tl.constexpr):
    """Write ``sum_j c[i, j] + max_j c[i, j]`` for ``c = a @ b``.

    ``a`` is ``[SIDE, inner]``, ``b`` is ``[inner, SIDE]``, ``out`` is ``[SIDE]``; fp32, dense.
    """
    rows = tl.arange(0, SIDE)
    acc = tl.zeros([SIDE, SIDE], dtype=tl.float32)
    for start in range(0, inner, STEP):
        k = start + tl.arange(0, STEP)
        inside = k < inner
        a = tl.load(a_ptr + rows[:, None] * inner + k[None, :], mask=inside[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * SIDE + rows[None, :], mask=inside[:, None], other=0.0)
        acc += tl.dot(a, b)
    tl.store(out_ptr + rows, tl.sum(acc, axis=1) + tl.max(acc, axis=1))


def expected() -> list[int]:
    """Return the canary's ``ROWS`` numbers, worked out without torch, numpy or Triton.

    All inputs are small integers, so fp32 (and TF32, which a GPU's dot may use) is exact.
    """
    result = []
    for i in range(ROWS):
        row = [sum(_a(i, k) * _b(k, j) for k in range(INNER)) for j in range(ROWS)]
        result.append(sum(row) + max(row))
    return result


def explain_unrunnable(kernel: object, device_type: str) -> str | None:
    """Say why a kernel cannot run on a device, or return None if it can.

    Args:
        kernel: what ``@triton.jit`` returned.
        device_type: ``"cpu"`` or ``"cuda"``, as in ``tensor.device.type``.

    Returns:
        A sentence with the remedy; None where the kernel can be launched.
    """
    compiled = isinstance(kernel, JITFunction)
    language_compiled = isinstance(tl.zeros, JITFunction)
    asked = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    if compiled and device_type != "cpu":
        return None
    if not compiled and not language_compiled:
        return None
    if compiled and not asked:
        return (
            "Triton kernels on a CPU need Triton's interpreter. "
            f"{_RESTART} set TRITON_INTERPRET=1 {_FIRST}."
        )
    return (
        "TRITON_INTERPRET=1 was set too late: Triton had been imported already, and its functions "
        f"were made for a GPU. {_RESTART} set it {_FIRST}."
    )


def check_canary(device: str | None = None) -> CanaryReport:
    """Run the canary and compare every number.

    Args:
        device: ``"cpu"`` or ``"cuda"``; the GPU where torch sees one, if None.

    Returns:
        How it ran.

    Raises:
        CanaryError: the kernel cannot run, ran into an error, or returned wrong numbers.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if reason := explain_unrunnable(canary_kernel, device):
        raise CanaryError(reason)
    try:
        found = _launch(device)
    except Exception as error:
        raise CanaryError(f"The canary kernel failed: {type(error).__name__}: {error}") from error
    if found != expected():
        raise CanaryError(_describe_difference(found))
    mode = "compiled" if isinstance(canary_kernel, JITFunction) else "interpreted"
    return CanaryReport(triton.__version__, device, mode)


def _a(i: int, k: int) -> int:
    return (i * INNER + k) % 7


def _b(k: int, j: int) -> int:
    return (k * ROWS + j) % 5


def _launch(device: str) -> list[float]:
    """Run the kernel once; inputs lie beside NaN, so that a mask which lets one through shows."""
    beyond = torch.full((BLOCK * ROWS,), float("nan"))
    a = torch.tensor([_a(i, k) for i in range(ROWS) for k in range(INNER)], dtype=torch.float32)
    b = torch.tensor([_b(k, j) for k in range(INNER) for j in range(ROWS)], dtype=torch.float32)
    out = torch.full((ROWS,), _UNWRITTEN, device=device)
    canary_kernel[(1,)](
        torch.cat([a, beyond]).to(device),
        torch.cat([b, beyond]).to(device),
        out,
        INNER,
        SIDE=ROWS,
        STEP=BLOCK,
    )
    return out.tolist()


def _describe_difference(found: list[float]) -> str:
    """Name the kind of wrong result, since each kind has another cause."""
    if all(value == 0 for value in found):
        what = "returned only zeros"
    elif all(value == _UNWRITTEN for value in found):
        what = "wrote nothing"
    else:
        what = f"returned {found[:4]}... instead of {expected()[:4]}..."
    return (
        f"The canary kernel ran without an error and {what} (triton {triton.__version__}). "
        "No kernel's result can be trusted here: install the versions in constraints.txt."
    )
