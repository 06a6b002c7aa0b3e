"""Where and in what numbers an engine computes, and how data gets there and back."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

DTYPES = ("float64", "float32", "float16", "bfloat16")
#: Arrays that travel together start at multiples of so many bytes, as wide loads want it.
ALIGNMENT = 64


def choose_device(device: str | torch.device) -> torch.device:
    """Turns "auto" or a name into a device.

    Raises:
        ValueError: it is not supported, or not there.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device={str(device)!r} is not supported: choose auto, cpu or cuda")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r}, but torch sees no GPU: use device='cpu'")
    return chosen


def choose_dtype(dtype: str | torch.dtype, own: str, device: torch.device) -> torch.dtype:
    """Turns "auto" or a name into a dtype.

    Args:
        dtype: "auto", a name, or a dtype.
        own: the name of the dtype that the model was saved in.
        device: where it will run.

    Raises:
        ValueError: it is unknown.
    """
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    if dtype == "auto":
        # CPUs of this day compute bfloat16 slower than float32, if they can at all.
        dtype = "float32" if device.type == "cpu" else own
        if dtype == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            dtype = "float16"  # GPUs before 2020
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown: choose from auto, {', '.join(DTYPES)}")
    chosen = getattr(torch, dtype)
    assert isinstance(chosen, torch.dtype)
    return chosen


def working_on(device: torch.device) -> AbstractContextManager[object]:
    """Makes a GPU the one that kernels, streams and events belong to, in this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@cache
def has_triton() -> bool:
    """Whether Triton is installed: there is none for macOS and Windows."""
    return find_spec("triton") is not None


def upload(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Sends arrays to a device, all in one transfer, without waiting for what runs there.

    (A copy from ordinary memory first waits until the device has caught up. torch keeps the pinned
    memory from being used again before the transfer is done.)
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    packed = pack(arrays).pin_memory().to(device, non_blocking=True)
    return unpack(packed, arrays)


def upload_one(values: Sequence[float], dtype: type[np.generic], device: torch.device) -> Tensor:
    """Sends a list of numbers to a device, see `upload`."""
    (tensor,) = upload([np.array(values, dtype)], device)
    return tensor


def pack(arrays: Sequence[np.ndarray]) -> Tensor:
    """Lays arrays end to end in bytes [n] uint8, each at a multiple of `ALIGNMENT`."""
    size = sum(_padded(array.nbytes) for array in arrays)
    packed = np.zeros(max(size, ALIGNMENT), np.uint8)  # of nothing at all there are no views
    begin = 0
    for array in arrays:
        bytes_of = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        packed[begin : begin + array.nbytes] = bytes_of
        begin += _padded(array.nbytes)
    return torch.from_numpy(packed)


def unpack(packed: Tensor, like: Sequence[np.ndarray]) -> list[Tensor]:
    """Views into what `pack` made of arrays of these shapes and dtypes."""
    views, begin = [], 0
    for array in like:
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        piece = packed[begin : begin + array.nbytes].view(dtype)
        views.append(piece.view(array.shape))
        begin += _padded(array.nbytes)
    return views


class Arrival:
    """Says when all that was sent to the host before now has arrived."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Blocks until then: the one time in a step that the host waits for the device."""
        if self._event is not None:
            self._event.synchronize()


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
