"""The three layers that the transformer is made of.

Parameters are made empty: ``weights.py`` fills them in place from the checkpoint, so that a model
takes its own size in memory once and no random numbers are drawn for nothing.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from minillm_serve.models.codes import CodedWeight, find_codes
from minillm_serve.models.functional import add_rms_norm, rms_norm

#: Rows up to which reading few bytes of a weight beats multiplying float32 as fast as it goes.
FEW_ROWS = 24


class Placement(NamedTuple):
    """What a model's parameters are made of, and where they live."""

    dtype: torch.dtype
    device: torch.device

    def parameter(self, *shape: int) -> nn.Parameter:
        """A parameter without values and without gradient."""
        values = torch.empty(*shape, dtype=self.dtype, device=self.device)
        return nn.Parameter(values, requires_grad=False)


class Linear(nn.Module):
    """``y = x W^T + b``. Every product with a weight matrix goes through here.

    Args:
        in_features: columns of ``weight [out, in]``.
        out_features: its rows.
        bias: whether there is a ``bias [out]``.
        place: dtype and device.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, place: Placement) -> None:
        super().__init__()
        self.weight = place.parameter(out_features, in_features)
        self.bias = place.parameter(out_features) if bias else None
        self.coded: CodedWeight | None = None

    def pack(self, *, relayout: bool = True) -> None:
        """Prepares the weight for products on a CPU, once it is filled; its values stay.

        Args:
            relayout: lay it out as ``[in, out]`` in memory; the product with some tens of rows is
                then faster, and no other one slower. Its shape stays.
        """
        self.coded = find_codes(self.weight)
        if relayout:
            self.weight.data = self.weight.data.t().contiguous().t()

    def forward(self, x: Tensor) -> Tensor:
        """``[T, in] -> [T, out]``."""
        if self.coded is None or len(x) > FEW_ROWS:
            return F.linear(x, self.weight, self.bias)
        product = self.coded.linear(x)
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


class Embedding(nn.Module):
    """One row of ``weight [V, hidden]`` a token."""

    def __init__(self, vocab_size: int, hidden_size: int, place: Placement) -> None:
        super().__init__()
        self.weight = place.parameter(vocab_size, hidden_size)

    def forward(self, token_ids: Tensor) -> Tensor:
        """int64 ``[T] -> [T, hidden]``."""
        return F.embedding(token_ids, self.weight)
