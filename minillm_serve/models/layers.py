"""The three layers that the transformer is made of.

Parameters are made empty: ``weights.py`` fills them in place from the checkpoint, so that a model
takes its own size in memory once and no random numbers are drawn for nothing.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from minillm_serve.kernels.cpu_coded_linear import FEW_ROWS
from minillm_serve.models.codes import CodedWeight, find_codes
from minillm_serve.models.functional import add_rms_norm, rms_norm
from minillm_serve.models.quantized import QuantizedWeight
from minillm_serve.models.tiled import TiledWeight


class Placement(NamedTuple):
    """What a model's parameters are made of, and where they live."""

    dtype: torch.dtype
    device: torch.device

    def parameter(self, *shape: int) -> nn.Parameter:
        """A parameter without values and without gradient."""
        values = torch.empty(*shape, dtype=self.dtype, device=self.device)
        return nn.Parameter(values, requires_grad=False)


class Quantizable(nn.Module):
    """A layer whose weight ``[O, I]`` may be kept in fewer bits.

    Args:
        rows: O.
        columns: I.
        place: dtype and device.

    Attributes:
        weight: the values; without memory (on torch's device "meta") once they are quantized.
        quantized: the weight in fewer bits, laid out for its device; None if it is not.
    """

    def __init__(self, rows: int, columns: int, place: Placement) -> None:
        super().__init__()
        self.weight = place.parameter(rows, columns)
        self.quantized: TiledWeight | QuantizedWeight | None = None

    def keep_quantized(self, weight: QuantizedWeight, device: torch.device) -> None:
        """Takes a quantized weight in place of the values, whose memory is given back."""
        self.quantized = TiledWeight.of(weight) if device.type == "cpu" else weight.to(device)
        self.weight = Placement(self.weight.dtype, torch.device("meta")).parameter(*weight.shape)

    def share(self, other: "Quantizable") -> None:
        """Has the same weight as another layer, in the same memory."""
        self.weight, self.quantized = other.weight, other.quantized


class Linear(Quantizable):
    """``y = x W^T + b``. Every product with a weight matrix goes through here.

    Args:
        in_features: columns of ``weight [out, in]``.
        out_features: its rows.
        bias: whether there is a ``bias [out]``.
        place: dtype and device.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, place: Placement) -> None:
        super().__init__(out_features, in_features, place)
        self.bias = place.parameter(out_features) if bias else None
        #: On a CPU, the same values as codes, if the weight was quantized before it became floats.
        self.coded: CodedWeight | None = None

    def pack(self, *, relayout: bool = True) -> None:
        """Prepares the weight for products on a CPU, once it is filled; its values stay.

        Args:
            relayout: lay it out as ``[in, out]`` in memory; the product with some tens of rows is
                then faster, and no other one slower. Its shape stays.
        """
        if self.quantized is not None:
            return
        self.coded = find_codes(self.weight)
        if relayout:
            self.weight.data = self.weight.data.t().contiguous().t()

    @property
    def bytes_read(self) -> int:
        """Bytes of the weight that a product with few rows reads."""
        return (self.quantized or self.coded or self.weight).nbytes

    def forward(self, x: Tensor) -> Tensor:
        """``[T, in] -> [T, out]``."""
        if self.quantized is not None:
            product = self.quantized.linear(x)
        elif self.coded is not None and len(x) <= FEW_ROWS:
            product = self.coded.linear(x)
        else:
            return F.linear(x, self.weight, self.bias)
        return product if self.bias is None else product.add_(self.bias)


class RMSNorm(nn.Module):
    """Root mean square norm; see ``functional.rms_norm``.

    Args:
        shape: of the weight; the norm runs over its last dimension.
        eps: added to the mean square.
        place: dtype and device.
    """

    def __init__(self, shape: tuple[int, ...], eps: float, place: Placement) -> None:
        super().__init__()
        self.weight = place.parameter(*shape)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """``[..., *shape] -> [..., *shape]``."""
        return rms_norm(x, self.weight, self.eps)

    def after_adding(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of ``residual + x``, and ``residual + x``, in one step."""
        return add_rms_norm(x, residual, self.weight, self.eps)


class Embedding(Quantizable):
    """One row of ``weight [V, hidden]`` a token."""

    def forward(self, token_ids: Tensor) -> Tensor:
        """int64 ``[T] -> [T, hidden]``."""
        if self.quantized is not None:
            return self.quantized.rows(token_ids).expand().to(self.weight.dtype)
        return F.embedding(token_ids, self.weight)
