"""What the tests of Triton kernels share: where they run, poison, and how equal is equal.

Without a GPU kernels run in Triton's interpreter (see tests/conftest.py); with one they run
compiled, and the same tests hold.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import triton.language as tl
from minillm_serve.kernels.canary import canary_kernel
from minillm_serve.kernels.launch import is_interpreted
from torch import Tensor

from tests.runtime.paged import Problem

DEVICE = "cpu" if is_interpreted(canary_kernel) else "cuda"
#: A block id that no pool has: a kernel that followed it would crash.
NO_BLOCK = 2**31 - 1


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor full of NaN: what a kernel leaves unwritten, or should not have read, shows."""
    return torch.full(shape, math.nan, dtype=dtype, device=DEVICE)


def on_device(problem: Problem, dtype: torch.dtype) -> Problem:
    """A problem in another dtype, on the tests' device, with poison in its block tables too."""
    metadata = problem.metadata
    size = problem.k_cache.shape[2]
    tables = metadata.block_tables.clone()
    for row, length in zip(tables, metadata.seq_lens.tolist(), strict=True):
        row[-(-length // size) :] = NO_BLOCK
    moved = dataclasses.replace(
        metadata,
        query_start_loc=metadata.query_start_loc.to(DEVICE),
        seq_lens=metadata.seq_lens.to(DEVICE),
        block_tables=tables.to(DEVICE),
        slot_mapping=metadata.slot_mapping.to(DEVICE),
    )
    q, k_cache, v_cache = (
        x.to(DEVICE, dtype) for x in (problem.q, problem.k_cache, problem.v_cache)
    )
    return Problem(q, k_cache, v_cache, moved, problem.keys, problem.values)


def assert_rounded(got: Tensor, want: Tensor) -> None:
    """Checks a result against float64: to 2e-6, and in 16 bits the rounding of the output besides.

    Args:
        got: what the kernel wrote.
        want: float64, worked out from the same (rounded) inputs.
    """
    half_unit = 0.0 if got.dtype == torch.float32 else torch.finfo(got.dtype).eps / 2
    if DEVICE == "cuda" and half_unit:
        half_unit *= 2  # compiled, the weights of a softmax are rounded as well before their dot
    torch.testing.assert_close(got.double().cpu(), want.cpu(), rtol=2e-6 + half_unit, atol=2e-6)


@contextlib.contextmanager
def rounding_interpreter() -> Iterator[None]:
    """Makes the interpreter round fp32 to bf16 to nearest even, as a GPU does; it truncates."""
    if DEVICE == "cuda":
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def rounding(original: Callable) -> Callable:
        def convert(self, src, dst_type, *mode):
            if src.dtype.scalar != tl.float32 or dst_type.scalar != tl.bfloat16:
                return original(self, src, dst_type, *mode)
            values = torch.from_numpy(np.ascontiguousarray(src.data)).bfloat16()
            return TensorHandle(values.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)

        return convert

    with pytest.MonkeyPatch.context() as patch:
        for name in ("cast_impl", "create_fp_to_fp"):
            patch.setattr(InterpreterBuilder, name, rounding(getattr(InterpreterBuilder, name)))
        yield


@contextlib.contextmanager
def reads_fenced(*tensors: Tensor) -> Iterator[None]:
    """Fails when an interpreted kernel loads from outside of some tensors' memory.

    The interpreter itself notices nothing, unless the address is so wild that the process dies.
    """
    if DEVICE == "cuda":
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder

    storages = [tensor.untyped_storage() for tensor in tensors]
    fences = sorted((one.data_ptr(), one.data_ptr() + one.nbytes()) for one in storages)
    starts, ends = (np.array(column, dtype=np.uint64) for column in zip(*fences, strict=True))
    original = InterpreterBuilder.create_masked_load

    def load(self, ptrs, mask, *rest):
        read = np.broadcast_to(ptrs.data, np.shape(mask.data))[mask.data].astype(np.uint64)
        fence = np.searchsorted(starts, read, side="right") - 1
        inside = (fence >= 0) & (read < ends[fence])
        assert inside.all(), f"{np.count_nonzero(~inside)} elements are read outside of any tensor"
        return original(self, ptrs, mask, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", load)
        yield
