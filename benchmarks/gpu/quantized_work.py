"""Products with weights in few bits at work, beside the same product in 16 bits."""

import torch
import torch.nn.functional as F  # noqa: N812
from minillm_serve.kernels.quantized_linear import quantized_linear, quantized_linear_reference

from benchmarks.gpu.case import Work
from minillm_serve.models.quantized import quantize


def product(
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    *,
    scheme: str,
    rows: int,
    outputs: int,
    columns: int,
) -> Work:
    """Some rows times a weight; most of the bytes are its codes."""
    values = torch.randn(outputs, columns, device=device) * columns**-0.5
    weight = quantize(values, scheme)
    x = torch.randn(rows, columns, device=device).to(dtype)
    wide = values.to(dtype)
    return Work(
        ours=lambda: quantized_linear(x, *weight),
        exact=lambda: quantized_linear_reference(x.double(), *weight),
        peers=lambda: {"torch, 16 bits": lambda: F.linear(x, wide)},
        num_bytes=weight.nbytes + x.nbytes + rows * outputs * x.element_size(),
        flops=2 * rows * outputs * columns,
    )
