"""Chooses an attention backend, and refuses by name what it cannot do."""

import torch

from minillm_serve.runtime.attention.base import AttentionBackend, Capabilities
from minillm_serve.runtime.attention.cpu import CpuAttention
from minillm_serve.runtime.attention.naive import NaiveAttention
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.attention.triton_backend import TritonAttention

BACKENDS: dict[str, type[AttentionBackend]] = {
    backend.name: backend
    for backend in (NaiveAttention, TorchAttention, CpuAttention, TritonAttention)
}
#: What "auto" tries on each type of device, the fastest first.
FASTEST = {"cpu": (CpuAttention, TorchAttention), "cuda": (TritonAttention, TorchAttention)}


def select_backend(
    name: str, *, device: torch.device, dtype: torch.dtype, needs_window: bool
) -> AttentionBackend:
    """Builds a backend by name; "auto" takes the fastest that can do the job.

    Raises:
        ValueError: the name is unknown, or the backend lacks something this engine needs.
    """
    if name == "auto":
        name = _fastest(device, dtype, needs_window)
    if name not in BACKENDS:
        raise ValueError(
            f"attention_backend={name!r} is unknown: choose from auto, {', '.join(BACKENDS)}"
        )
    backend = BACKENDS[name]
    lack = find_lack(backend.capabilities, device=device, dtype=dtype, needs_window=needs_window)
    if lack is not None:
        raise ValueError(f"attention_backend={name!r} {lack}")
    if obstacle := backend.find_obstacle(device):
        raise ValueError(f"attention_backend={name!r} cannot run here: {obstacle}")
    return backend()


def find_lack(
    can: Capabilities, *, device: torch.device, dtype: torch.dtype, needs_window: bool
) -> str | None:
    """What an engine needs and a backend lacks, as the end of a sentence; None if nothing."""
    if device.type not in can.devices:
        return f"does not run on device {device.type!r}, only on {', '.join(sorted(can.devices))}"
    if dtype not in can.dtypes:
        return f"does not take {dtype}, only {', '.join(sorted(map(str, can.dtypes)))}"
    if needs_window and not can.window:
        return "has no sliding window, which this model needs: choose another backend"
    return None


def _fastest(device: torch.device, dtype: torch.dtype, needs_window: bool) -> str:
    for backend in FASTEST.get(device.type, ()):
        lack = find_lack(
            backend.capabilities, device=device, dtype=dtype, needs_window=needs_window
        )
        if lack is None and backend.find_obstacle(device) is None:
            return backend.name
    return TorchAttention.name
