"""One step of ragged lengths and grouped heads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.parts import Part
from minillm_serve.parts.attention import as_backend, check_output
from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.attention.conformance import Problem, attend, make_problem
from minillm_serve.runtime.attention.naive import NaiveAttention
from minillm_serve.runtime.attention.torch_backend import TorchAttention

#: Operations that read no more of a tensor than they return.
PICKING = {
    torch.ops.aten.index,
    torch.ops.aten.index_select,
    torch.ops.aten.gather,
    torch.ops.aten.embedding,
    torch.ops.aten.take,
}
DECODES = tuple((1, length) for length in (5, 33, 100, 16, 64, 127, 90, 1))
SLICES = ((24, 24), (8, 70))


def trial(yours: Any) -> Trial:
    """A step of ragged lengths and grouped heads; of decodes alone for a `{"decode": function}`."""
    step = DECODES if isinstance(yours, dict) else DECODES + SLICES
    problem = _problem(step, torch.float32)
    return Trial(
        trace=f"a step of {sum(rows for rows, _ in step)} rows of {len(step)} sequences",
        naive=NaiveAttention,
        naive_is="row by row, head by head, block by block",
        reference=TorchAttention,
        measures=(
            Measure("error below", "<=", 1e-4, format=".0e"),
            Measure("rows spoilt", "=", 0),
            Measure("blocks read", "<="),
        ),
        count=lambda part: _count(part, step),
        work=lambda value: attend(_backend(Part("attention", value)), problem),
    )


def _problem(
    step: tuple[tuple[int, int], ...], dtype: torch.dtype, *, leftover: float = 0.0
) -> Problem:
    return make_problem(
        step,
        device=torch.device("cpu"),
        dtype=dtype,
        heads=8,
        kv_heads=2,
        dim=32,
        block_size=16,
        leftover=leftover,
    )


def _backend(part: Part) -> AttentionBackend:
    return as_backend(part, TorchAttention())


def _count(part: Part, step: tuple[tuple[int, int], ...]) -> Counters:
    backend, problem = _backend(part), _problem(step, torch.float32)
    exact = attend(NaiveAttention(), _problem(step, torch.float64))
    with part.blame("run"), torch.no_grad():
        amid_nan = attend(backend, _problem(step, torch.float32, leftover=float("nan")))
        reads = ReadCounter(problem.k_cache, problem.v_cache)
        with reads:
            out = attend(backend, problem)
    check_output(part, out, problem.q)
    _, kv_heads, size, dim = problem.k_cache.shape
    block_bytes = 2 * kv_heads * size * dim * problem.k_cache.itemsize
    return {
        "error below": _power_of_ten(float((out.double() - exact).abs().max())),
        "rows spoilt": int(amid_nan.isnan().any(dim=(1, 2)).sum()),
        "blocks read": reads.num_bytes / block_bytes or None,
    }


def _power_of_ten(error: float) -> float:
    """The first one that is not below the error, whose digits differ from machine to machine."""
    if not math.isfinite(error):
        return math.inf
    return 10.0 ** math.ceil(math.log10(max(error, 1e-12)))


class ReadCounter(TorchDispatchMode):
    """Counts what torch's operations read of some tensors; a kernel's own reads stay unseen.

    Args:
        tensors: whose memory is watched, through whatever view.

    Attributes:
        num_bytes: read so far, repeats counted.
    """

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        self.num_bytes = 0
        self._watched = {_memory(tensor) for tensor in tensors}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and adds up its reads."""
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        watched = [x for x in tensors if _memory(x) in self._watched]
        is_view = isinstance(out, Tensor) and _memory(out) in self._watched
        if watched and not is_view:
            picks = func.overloadpacket in PICKING
            self.num_bytes += out.nbytes if picks else sum(x.nbytes for x in watched)
        return out


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
