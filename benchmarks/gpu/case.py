"""What the check knows of a kernel: how to call it, what it must give, what it should reach."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Results = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel on one input.

    Attributes:
        ours: runs it; the results.
        exact: the same in float64, or exact integers. Only called for small inputs.
        peers: builds what it is compared with, name -> a call; only called to time them.
        num_bytes: that must be moved at least.
        flops: that must be computed at least.
        reset: puts back what `ours` changes in place.
    """

    ours: Callable[[], Results]
    exact: Callable[[], Results]
    peers: Callable[[], Mapping[str, Callable[[], Any]]] = dict
    num_bytes: float = 0.0
    flops: float = 0.0
    reset: Callable[[], Any] = lambda: None


@dataclass(frozen=True, slots=True)
class Goal:
    """What a kernel should reach.

    Attributes:
        share: of the roof; or
        times: as fast as
        peer: this one.
    """

    share: float | None = None
    times: float | None = None
    peer: str | None = None

    def __str__(self) -> str:
        return f"{self.share:.0%} of roof" if self.share else f"{self.times:g} x {self.peer}"

    def reached(self, share: float, faster_than: Mapping[str, float]) -> bool:
        """Whether a measurement is good enough; a peer that did not run cannot be missed."""
        if self.share is not None:
            return share >= self.share
        assert self.peer is not None
        assert self.times is not None
        return faster_than.get(self.peer, self.times) >= self.times


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, some inputs to check it on and one to time it on.

    Attributes:
        name: of the kernel and of what is special here.
        title: of the size that is timed.
        build: makes the inputs, from a device, a dtype, `compiled` (whether peers may take the
            time to compile) and a size.
        timed: the size that is timed, in bfloat16.
        checked: sizes that are compared with float64; the first is also what a dry run times.
        goal: for the timed size.
        dtypes: that it is checked in.
    """

    name: str
    title: str
    build: Callable[..., Work]
    timed: Mapping[str, Any]
    checked: tuple[Mapping[str, Any], ...]
    goal: Goal
    dtypes: tuple[torch.dtype, ...] = field(default=(torch.float32, torch.float16, torch.bfloat16))
