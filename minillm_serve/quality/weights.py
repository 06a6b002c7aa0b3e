"""Weights rounded in place of the real ones: layer by layer, by the nearest or by something better.

What is put back are floats, so that any number of bits can be tried and the rest of the engine
stays as it is. (The engine's own INT8 and INT4 are `LLM(quantization=...)`; they round what
multiplies the weights as well.)
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minillm_serve.models.layers import Linear
from minillm_serve.models.transformer import DecoderLayer, Transformer

#: Name of a weight, and its values [O, I] float32 -> others.
Change = Callable[[str, Tensor], Tensor]


def linears(model: Transformer, layers: Collection[int] | None = None) -> dict[str, Linear]:
    """The matrices of some layers (None: of all), as "3.attention.qkv_proj"."""
    found: dict[str, Linear] = {}
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, DecoderLayer)
        if layers is None or number in layers:
            for name, module in layer.named_modules():
                if isinstance(module, Linear):
                    found[f"{number}.{name}"] = module
    return found


@contextmanager
def changed(
    model: Transformer, change: Change, layers: Collection[int] | None = None
) -> Iterator[None]:
    """Has other weights in some layers until the block ends.

    Args:
        model: not quantized; nobody else may be using it.
        change: gives the new values of each matrix.
        layers: whose matrices; None: all layers'.

    Raises:
        ValueError: the model's weights are quantized already.
    """
    matrices = linears(model, layers)
    if any(linear.quantized is not None for linear in matrices.values()):
        raise ValueError("these weights are quantized: load the model with quantization=None")
    before = {name: (linear.weight, linear.coded) for name, linear in matrices.items()}
    try:
        for name, linear in matrices.items():
            new = change(name, linear.weight.data)
            linear.weight, linear.coded = nn.Parameter(new, requires_grad=False), None
        yield
    finally:
        for name, linear in matrices.items():
            linear.weight, linear.coded = before[name]


@dataclass(frozen=True, slots=True)
class Grid:
    """The values that a group of neighbours in a row may take: from its lowest to its highest.

    Attributes:
        bits: of a code.
        group: neighbours that share a step and a start.
    """

    bits: int
    group: int

    def fit(self, group: Tensor) -> tuple[Tensor, Tensor]:
        """Steps and starts [O, 1] of groups [O, group]."""
        starts = group.amin(-1, keepdim=True)
        return (group.amax(-1, keepdim=True) - starts) / (2**self.bits - 1), starts

    def nearest(self, x: Tensor, steps: Tensor, starts: Tensor) -> Tensor:
        """The values on the grid that are nearest to x."""
        codes = ((x - starts) / torch.where(steps > 0, steps, 1)).round()
        return codes.clamp(0, 2**self.bits - 1) * steps + starts

    def round(self, weight: Tensor) -> Tensor:
        """Round to nearest (RTN): every weight by itself, [O, I].

        Raises:
            ValueError: rows are no whole number of groups.
        """
        if weight.shape[1] % self.group:
            raise ValueError(
                f"rows of {weight.shape[1]} weights are no whole number of groups of {self.group}"
            )
        groups = weight.reshape(len(weight), -1, self.group)
        return self.nearest(groups, *self.fit(groups)).view_as(weight)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a matrix is multiplied by, as seen over some text.

    Attributes:
        products: [I, I], the mean of x x^T over tokens.
        size: [I], the mean of abs(x): how large each channel is.
    """

    products: Tensor
    size: Tensor

    def error(self, difference: Tensor) -> float:
        """Mean squared error of W x, if W is wrong by so much [O, I]."""
        return ((difference @ self.products) * difference).sum().item()


@contextmanager
def watching(
    model: Transformer, layers: Collection[int] | None = None
) -> Iterator[dict[str, Inputs]]:
    """Notes what comes into each matrix while the block runs; the dict is filled at its end."""
    sums: dict[str, tuple[Tensor, Tensor, int]] = {}

    def noting(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            x = given[0].float()
            products, size, count = sums.get(name, (0, 0, 0))
            sums[name] = (products + x.T @ x, size + x.abs().sum(0), count + len(x))

        return note

    handles = [
        linear.register_forward_pre_hook(noting(name))
        for name, linear in linears(model, layers).items()
    ]
    found: dict[str, Inputs] = {}
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
        found |= {name: Inputs(p / count, s / count) for name, (p, s, count) in sums.items()}
