"""What happens between matrix products, in torch.

On a CPU in float32 one fused loop takes its place, on a GPU one Triton kernel. The torch lines of
each function are the reference of the kernels beside them.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import minillm_serve.kernels.cpu_pointwise as cpu

#: Rows up to which one thread's fused loop beats torch's parallel operations.
FEW_ROWS = 128


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm over the last dimension (Zhang and Sennrich 2019, arXiv:1910.07467).

    As in transformers, the norm is taken in float32 (float64 stays float64) and rounded to x's
    dtype before the weight multiplies it.

    Args:
        x: ``[T, *shape]``.
        weight: ``shape``, of one or two dimensions.
        eps: added to the mean square.
    """
    if _fusible(x):
        rows = weight.reshape(-1, weight.shape[-1])
        out = torch.empty(x.shape, dtype=x.dtype)
        shape = (len(x), *rows.shape)
        cpu.rms_norm(x.view(shape).numpy(), rows.numpy(), eps, out.view(shape).numpy())
        return out
    if on_gpu(x) and (norm := triton_kernels("rms_norm")) is not None:
        return norm.rms_norm(x, weight, eps)
    wide = x if x.dtype == torch.float64 else x.float()
    return F.rms_norm(wide, x.shape[-1:], None, eps).to(x.dtype) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Adds to the residual stream and reads its norm.

    Args:
        x: ``[T, hidden]``.
        residual: ``[T, hidden]``; it may be changed in place, so only the result is to be used.
        weight: ``[hidden]``.
        eps: added to the mean square.

    Returns:
        ``rms_norm(residual + x)`` and ``residual + x``.
    """
    if _fusible(x):
        out = torch.empty(x.shape, dtype=x.dtype)
        cpu.add_rms_norm(x.numpy(), residual.numpy(), weight.numpy(), eps, out.numpy())
        return out, residual
    if on_gpu(x) and (norm := triton_kernels("rms_norm")) is not None:
        return norm.add_rms_norm(x, residual, weight, eps)
    residual = residual + x
    return rms_norm(residual, weight, eps), residual


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair ``(x[i], x[i + D/2])`` by its angle.

    ``(a cos - b sin, b cos + a sin)`` in two operations instead of five: rolling by half a head
    swaps a and b, and the minus sign is already in ``sin``.

    Args:
        x: ``[T, heads, D]``.
        cos, sin: ``[T, 1, D]`` from ``rope.rotation``.
    """
    if _fusible(x):
        out = torch.empty(x.shape, dtype=x.dtype)
        cpu.rotate(x.numpy(), cos.numpy(), sin.numpy(), out.numpy())
        return out
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def silu_mul(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` of the fused projection: ``[T, 2 * inner] -> [T, inner]``."""
    if _fusible(gate_up) and len(gate_up) <= FEW_ROWS:
        out = torch.empty(len(gate_up), gate_up.shape[1] // 2, dtype=gate_up.dtype)
        cpu.silu_mul(gate_up.numpy(), out.numpy())
        return out
    if on_gpu(gate_up) and (kernels := triton_kernels("silu_mul")) is not None:
        return kernels.silu_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _fusible(x: Tensor) -> bool:
    on_cpu = x.dtype is torch.float32 and x.device.type == "cpu"
    return on_cpu and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def on_gpu(x: Tensor) -> bool:
    """Whether a Triton kernel takes over. (What `torch.compile` compiles, it fuses itself.)"""
    return x.is_cuda and x.dtype is not torch.float64 and not torch.compiler.is_compiling()


@cache
def triton_kernels(name: str) -> ModuleType | None:
    """A module of Triton kernels; None where there is no Triton."""
    return import_module(f"minillm_serve.kernels.{name}") if find_spec("triton") else None
