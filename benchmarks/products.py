"""The matrix products of a quantized model's step, and nothing else: what is left is overhead."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from minillm_serve.kernels.cpu_int_linear import int_linear
from minillm_serve.kernels.cpu_layers import DOWN, GATE_UP, OUT, QKV
from minillm_serve.kernels.cpu_math import bind
from numba import njit

from minillm_serve.models.layers import Linear
from minillm_serve.models.tiled import TiledWeight, quantize_rows
from minillm_serve.models.transformer import DecoderLayer, Transformer


def products_of(model: Transformer, rows: int = 1) -> Callable[[], None]:
    """All products of a step with so many rows, called one after the other by compiled code.

    Raises:
        ValueError: the model's layers are not quantized alike, for a CPU.
    """
    layers = [layer for layer in model.layers if isinstance(layer, DecoderLayer)]
    every = [_linears(layer) for layer in layers]
    kinds = {tuple(_kind(linear) for linear in linears) for linears in every}
    if len(kinds) != 1:
        raise ValueError("the layers of this model have weights of different kinds")
    (kind,) = kinds
    table = np.array(
        [[a for li in linears for a in (*_weight(li).addresses, 0)] for linears in every]
    )
    names = ("qkv", "out", "gate_up", "down")
    products = {name: int_linear(*one) for name, one in zip(names, kind, strict=True)}
    products["head"] = int_linear(*_kind(model.lm_head))
    run = njit(bind(_products, **products))
    given = [_room(linear, rows) for linear in (*every[0], model.lm_head)]
    head = np.array(_weight(model.lm_head).addresses)
    return lambda: run(table, head, *given)


def seconds_of(run: Callable[[], None], repeat: int = 20) -> float:
    """The median of some runs."""
    run()
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


#: Bound by `products_of`.
qkv: Any = None
out: Any = None
gate_up: Any = None
down: Any = None
head: Any = None


def _products(table, last, a, b, c, d, e):  # type: ignore[no-untyped-def]
    for layer in table:
        qkv(layer[QKV], layer[QKV + 1], layer[QKV + 2], *a)
        out(layer[OUT], layer[OUT + 1], layer[OUT + 2], *b)
        gate_up(layer[GATE_UP], layer[GATE_UP + 1], layer[GATE_UP + 2], *c)
        down(layer[DOWN], layer[DOWN + 1], layer[DOWN + 2], *d)
    head(last[0], last[1], last[2], *e)


def _linears(layer: DecoderLayer) -> tuple[Linear, Linear, Linear, Linear]:
    attention, mlp = layer.attention, layer.mlp
    return attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj


def _weight(linear: Linear) -> TiledWeight:
    if not isinstance(linear.quantized, TiledWeight):
        raise ValueError("this model is not quantized, or not on a CPU")
    return linear.quantized


def _kind(linear: Linear) -> tuple[int, bool]:
    weight = _weight(linear)
    return weight.bits, weight.by_group


def _room(linear: Linear, rows: int) -> tuple[np.ndarray, ...]:
    """Rows to multiply, and room for what comes of them."""
    outputs, columns = _weight(linear).shape
    return *quantize_rows(torch.randn(rows, columns)), np.empty((rows, outputs), np.float32)
