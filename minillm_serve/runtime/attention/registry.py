"""Chooses an attention backend, and refuses by name what it cannot do."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Needs:
    """What an engine asks of its attention.

    Attributes:
        device: that it runs on.
        dtype: that it computes in.
        window: whether the model has a sliding window.
        kv_dtype: of the cache, if it is another.
    """

    device: torch.device
    dtype: torch.dtype
    window: bool
    kv_dtype: torch.dtype | None = None


def select_backend(
    name: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    needs_window: bool,
    kv_dtype: torch.dtype | None = None,
) -> AttentionBackend:
    """Builds a backend by name; "auto" takes the fastest that can do the job.

    Args:
        name: a key of `BACKENDS`, or "auto".
        device: that the engine runs on.
        dtype: that it computes in.
        needs_window: whether the model has a sliding window.
        kv_dtype: of the cache; None: it is the same.

    Raises:
        ValueError: the name is unknown, or the backend lacks something this engine needs.
    """
    needs = Needs(device, dtype, needs_window, kv_dtype)
    if name == "auto":
        name = _fastest(needs)
    if name not in BACKENDS:
        raise ValueError(
            f"attention_backend={name!r} is unknown: choose from auto, {', '.join(BACKENDS)}"
        )
    backend = BACKENDS[name]
    lack = find_lack(backend.capabilities, needs)
    if lack is not None:
        raise ValueError(f"attention_backend={name!r} {lack}")
    if obstacle := backend.find_obstacle(device):
        raise ValueError(f"attention_backend={name!r} cannot run here: {obstacle}")
    return backend()


def find_lack(can: Capabilities, needs: Needs) -> str | None:
    """What an engine needs and a backend lacks, as the end of a sentence; None if nothing."""
    device, dtype = needs.device.type, needs.dtype
    if device not in can.devices:
        return f"does not run on device {device!r}, only on {', '.join(sorted(can.devices))}"
    if dtype not in can.dtypes:
        return f"does not take {dtype}, only {', '.join(sorted(map(str, can.dtypes)))}"
    if needs.kv_dtype not in (None, dtype, *can.kv_dtypes):
        known = ", ".join(sorted(map(str, can.kv_dtypes))) or "none"
        return (
            f"reads no KV cache of {needs.kv_dtype} (of quantized ones: {known}): choose another "
            "backend, or kv_cache_dtype='auto'"
        )
    if needs.window and not can.window:
        return "has no sliding window, which this model needs: choose another backend"
    return None


def _fastest(needs: Needs) -> str:
    for backend in FASTEST.get(needs.device.type, ()):
        lack = find_lack(backend.capabilities, needs)
        if lack is None and backend.find_obstacle(needs.device) is None:
            return backend.name
    return TorchAttention.name
