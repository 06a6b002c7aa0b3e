"""What a kernel really reads and writes: every address of a launch in Triton's interpreter.

The interpreter performs each load and store in one function. Here that function is watched: it sees
the addresses of all lanes, and the mask. Addresses in no tensor of the launch are refused before
they are touched: else a wrong block id is a crash of Python, or somebody else's memory. And lanes
that are masked off without an `other` get NaN: on a GPU they are undefined, and the interpreter's
own 0 would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor
from triton.runtime import interpreter


class WildAccess(RuntimeError):
    """A kernel was about to touch memory that is in none of its tensors."""


@dataclass(frozen=True)
class Access:
    """One load or store of one program, in a tensor that is watched.

    Attributes:
        program: (x, y, z).
        is_load: or a store.
        tensor: its name.
        index: [lanes, dims] int64; where each lane points. Outside the tensor's shape for a lane
            whose mask is off, and in the margin of a tensor that is a part of a larger one.
        mask: [lanes] bool; lanes that are off touch nothing.
    """

    program: tuple[int, int, int]
    is_load: bool
    tensor: str
    index: np.ndarray[Any, Any]
    mask: np.ndarray[Any, Any]


@dataclass
class Recording:
    """What happened, in order.

    Attributes:
        accesses: to the watched tensors.
        wild: why a launch was stopped; "" if none was.
        undefined: which load was masked without an `other`; "" if none was.
    """

    accesses: list[Access] = field(default_factory=list)
    wild: str = ""
    undefined: str = ""

    def touched(
        self, tensor: str, program: tuple[int, int, int] | None = None, *, stores: bool = False
    ) -> np.ndarray[Any, Any]:
        """[n, dims] indices that were read (or written) in a tensor, in order, with repeats."""
        found = [
            access.index[access.mask]
            for access in self.accesses
            if access.tensor == tensor
            and access.is_load is not stores
            and program in (None, access.program)
        ]
        return np.concatenate(found) if found else np.empty((0, 0), np.int64)


@dataclass(frozen=True)
class _Watched:
    """A tensor and the memory that may be touched on its account: its whole storage."""

    name: str
    start: int
    stop: int
    low: int
    high: int
    itemsize: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> _Watched:
        storage, size, strides = tensor.untyped_storage(), tensor.element_size(), tensor.stride()
        start, low = tensor.data_ptr(), tensor.untyped_storage().data_ptr()
        last = sum((n - 1) * stride for n, stride in zip(tensor.shape, strides, strict=True))
        stop = start + (last + 1) * size
        return cls(name, start, stop, low, low + storage.nbytes(), size, tuple(strides))

    def holds(
        self, addresses: np.ndarray[Any, Any], *, margins: bool = True
    ) -> np.ndarray[Any, Any]:
        """[n] bool; without margins, only the tensor's own elements count, from first to last."""
        low, high = (self.low, self.high) if margins else (self.start, self.stop)
        return (addresses >= low) & (addresses < high)

    def index(self, addresses: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """[n, dims]: the outermost dimension takes what the inner ones leave, even if negative."""
        rest = (addresses - self.start) // self.itemsize
        index = np.zeros((len(rest), len(self.strides)), np.int64)
        for dim in sorted(range(len(self.strides)), key=lambda i: -self.strides[i]):
            if self.strides[dim]:
                index[:, dim], rest = np.divmod(rest, self.strides[dim])
        return index


@contextmanager
def recorded(**tensors: Tensor) -> Iterator[Recording]:
    """Watches all launches of interpreted kernels in the `with` block.

    Args:
        **tensors: on the CPU. Accesses are told by these names.

    Yields:
        The recording, which grows with each launch.
    """
    recording = Recording()
    watch = _Watch(recording, {name: _Watched.of(name, t) for name, t in tensors.items()})
    builder = interpreter.interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store
    convert = interpreter._implicit_cvt

    def watched_load(ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        watch.see(ptrs, mask, is_load=True)
        loaded = load(ptrs, mask, other, *rest, **options)
        if other is None and not mask.data.all() and loaded.data.dtype.kind == "f":
            loaded.data = np.where(mask.data, loaded.data, np.nan).astype(loaded.data.dtype)
            recording.undefined = f"program {builder.grid_idx} masks a load and gives it no `other`"
        return loaded

    def watched_store(ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        watch.see(ptrs, mask, is_load=False)
        return store(ptrs, value, mask, *rest, **options)

    def watched_convert(argument: Any) -> Any:
        watch.allow(argument)
        return convert(argument)

    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    interpreter._implicit_cvt = watched_convert
    try:
        yield recording
    finally:
        del builder.create_masked_load, builder.create_masked_store  # the class's own show again
        interpreter._implicit_cvt = convert


class _Watch:
    """Takes down accesses, and stops those that lead nowhere."""

    def __init__(self, recording: Recording, watched: Mapping[str, _Watched]) -> None:
        self.recording, self.watched = recording, watched
        self.arguments: dict[int, int] = {}  # begin -> end of every storage that a launch was given

    def allow(self, argument: Any) -> None:
        """Takes in an argument of a launch."""
        if isinstance(argument, Tensor):
            storage = argument.untyped_storage()
            self.arguments[storage.data_ptr()] = storage.data_ptr() + storage.nbytes()

    def see(self, ptrs: Any, mask: Any, *, is_load: bool) -> None:
        """Looks at one load or store before it happens."""
        addresses = np.atleast_1d(ptrs.data).astype(np.int64).ravel()
        on = np.broadcast_to(mask.data, np.shape(ptrs.data)).astype(bool).ravel()
        program = interpreter.interpreter_builder.grid_idx
        home = self._home(addresses, on)
        self._stop_wild(addresses[on], program, is_load)
        if home is not None:
            self.recording.accesses.append(
                Access(program, is_load, home.name, home.index(addresses), on)
            )

    def _home(self, addresses: np.ndarray[Any, Any], on: np.ndarray[Any, Any]) -> _Watched | None:
        """The watched tensor that the lanes point into; those that are off, if none is on."""
        lanes = addresses[on] if on.any() else addresses
        for margins in (False, True):
            for tensor in self.watched.values():
                if tensor.holds(lanes, margins=margins).any():
                    return tensor
        return None

    def _stop_wild(
        self, addresses: np.ndarray[Any, Any], program: tuple[int, int, int], is_load: bool
    ) -> None:
        inside = np.zeros(len(addresses), bool)
        for begin, end in self.arguments.items():
            inside |= (addresses >= begin) & (addresses < end)
        if inside.all():
            return
        address = int(addresses[~inside][0])
        verb = "reads" if is_load else "writes"
        self.recording.wild = f"program {program} {verb} {self._place(address)}"
        raise WildAccess(self.recording.wild)

    def _place(self, address: int) -> str:
        """Where a lost address lies, seen from the nearest watched tensor."""
        if not self.watched:
            return "outside all of its tensors"

        def distance(tensor: _Watched) -> int:
            return max(tensor.low - address, address - tensor.high, 0)

        near = min(self.watched.values(), key=distance)
        side = "before the beginning" if address < near.low else "past the end"
        away = near.low - address if address < near.low else address - near.high + near.itemsize
        return f"{away:,} bytes {side} of {near.name}"
