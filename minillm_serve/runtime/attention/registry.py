"""Chooses an attention backend, and refuses by name what it cannot do."""

import torch

from minillm_serve.runtime.attention.base import AttentionBackend
from minillm_serve.runtime.attention.cpu import CpuAttention
from minillm_serve.runtime.attention.naive import NaiveAttention
from minillm_serve.runtime.attention.torch_backend import TorchAttention

BACKENDS: dict[str, type[AttentionBackend]] = {
    backend.name: backend for backend in (NaiveAttention, TorchAttention, CpuAttention)
}


def select_backend(
    name: str, *, device: torch.device, dtype: torch.dtype, needs_window: bool
) -> AttentionBackend:
    """Builds a backend by name; "auto" takes the fastest that can do the job.

    Raises:
        ValueError: the name is unknown, or the backend lacks something this engine needs.
    """
    if name == "auto":
        fast = CpuAttention.capabilities
        name = "cpu" if device.type in fast.devices and dtype in fast.dtypes else "torch"
    if name not in BACKENDS:
        raise ValueError(
            f"attention_backend={name!r} is unknown: choose from auto, {', '.join(BACKENDS)}"
        )
    can = BACKENDS[name].capabilities
    if device.type not in can.devices:
        raise ValueError(
            f"attention_backend={name!r} does not run on device {device.type!r}, "
            f"only on {', '.join(sorted(can.devices))}"
        )
    if dtype not in can.dtypes:
        raise ValueError(
            f"attention_backend={name!r} does not take {dtype}, "
            f"only {', '.join(sorted(map(str, can.dtypes)))}"
        )
    if needs_window and not can.window:
        raise ValueError(
            f"attention_backend={name!r} has no sliding window, which this model needs: "
            "choose another backend"
        )
    return BACKENDS[name]()
