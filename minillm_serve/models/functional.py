"""What happens between matrix products: in torch, and on a CPU in float32 by one fused loop.

The torch line of each function is the reference of the kernel beside it.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from minillm_serve.kernels.cpu_pointwise import rms_norm as cpu_rms_norm
from minillm_serve.kernels.cpu_pointwise import rotate as cpu_rotate


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
        cpu_rms_norm(x.view(shape).numpy(), rows.numpy(), eps, out.view(shape).numpy())
        return out
    wide = x if x.dtype == torch.float64 else x.float()
    return F.rms_norm(wide, x.shape[-1:], None, eps).to(x.dtype) * weight


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
        cpu_rotate(x.numpy(), cos.numpy(), sin.numpy(), out.numpy())
        return out
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _fusible(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.device.type == "cpu" and not torch.is_grad_enabled()
