"""The layers of a quantized model on a CPU, in one call from each attention to the next.

It computes what `transformer.DecoderLayer` does, with the same weights; a step of few rows spends its
time on weights then, and not on calls.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.kernels.cpu_layers import Kind, between, feed_forward, projection
from minillm_serve.models.layers import Linear
from minillm_serve.models.quantized import GROUP
from minillm_serve.models.tiled import TiledWeight
from minillm_serve.models.transformer import Attend, DecoderLayer, FusedAttend, Transformer

NOTHING = np.empty(0, np.float32)


class FusedLayer(NamedTuple):
    """A layer as the kernels take it; see `kernels.cpu_layers`.

    Attributes:
        qkv: kind of the projection's weight.
        mlp: kinds of the output projection's, and the MLP's two.
        before: `projection`'s arguments from the norm to the norm of heads.
        after: `feed_forward`'s arguments from the output projection to the MLP's second weight.
    """

    qkv: Kind
    mlp: tuple[Kind, Kind, Kind]
    before: tuple[Any, ...]
    after: tuple[Any, ...]

    @classmethod
    def of(cls, layer: DecoderLayer) -> "FusedLayer | None":
        """A layer prepared; None if one of its weights is not quantized, or no whole groups wide."""
        attention, mlp = layer.attention, layer.mlp
        linears = (attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj)
        weights = [_weight(linear) for linear in linears]
        if any(weight is None for weight in weights):
            return None
        (qkv, qkv_kind), *rest = [weight for weight in weights if weight is not None]
        (o, _), (gate_up, _), (down, _) = rest
        qk_norm = np.empty((0, 0), np.float32)
        if attention.qk_norm is not None:
            qk_norm = attention.qk_norm.weight.numpy()
        norm, eps = layer.input_norm, layer.post_attention_norm.eps
        return cls(
            qkv_kind,
            (rest[0][1], rest[1][1], rest[2][1]),
            (norm.weight.numpy(), norm.eps, qkv, qk_norm),
            (o, layer.post_attention_norm.weight.numpy(), eps, gate_up, down),
        )


class FusedLayers:
    """Runs the layers of a model; see `Transformer.forward` for what flows between them.

    Args:
        model: its layers are quantized, and do not change any more.
        layers: they.
    """

    def __init__(self, model: Transformer, layers: list[FusedLayer]) -> None:
        self._layers = layers
        self._first = projection(layers[0].qkv)
        self._between = [between(*one.mlp, two.qkv) for one, two in pairwise(layers)]
        self._modules = [layer.attention for layer in model.layers]

    @classmethod
    def of(cls, model: Transformer) -> "FusedLayers | None":
        """For a model that is quantized and on a CPU; None for any other one."""
        if model.device.type != "cpu" or model.dtype != torch.float32:
            return None
        layers = [FusedLayer.of(layer) for layer in model.layers if isinstance(layer, DecoderLayer)]
        found = [layer for layer in layers if layer is not None]
        return cls(model, found) if len(found) == len(model.layers) else None

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend | FusedAttend, count: int
    ) -> tuple[Tensor, Tensor]:
        """Runs the first layers.

        Args:
            x: ``[T, hidden]``, the embeddings.
            cos, sin: ``[T, 1, D]``.
            attend: what happens between the tokens.
            count: of layers; at least 1.

        Returns:
            What the last of them added, and the residual stream before that.
        """
        fused = isinstance(attend, FusedAttend)
        residual = torch.zeros_like(x)
        stream, angles = residual.numpy(), (cos.numpy(), sin.numpy())
        attention = self._modules[0]
        heads = 0 if fused else attention.num_qk_heads
        shape = (len(x), attention.num_qk_heads + attention.num_kv_heads, attention.head_dim)
        qkv = torch.empty(shape)
        self._first(x.numpy(), stream, *self._layers[0].before, *angles, heads, qkv.numpy())
        for number in range(count):
            attended = _attend(attend, self._modules[number], qkv).reshape(len(x), -1).numpy()
            o, *rest = self._layers[number].after
            after = (attended, stream, o, *rest)
            if number + 1 == count:
                break
            qkv = torch.empty(shape)
            before = (*self._layers[number + 1].before, *angles, heads, qkv.numpy())
            self._between[number](after, before)
        out = torch.empty(x.shape)
        feed_forward(*self._layers[count - 1].mlp)(*after, out.numpy())
        return out, residual


def _attend(attend: Attend | FusedAttend, layer: Any, qkv: Tensor) -> Tensor:
    if isinstance(attend, FusedAttend):
        return attend.attend_qkv(layer.layer, qkv, layer.qk_norm)
    q, k, v = qkv.split([layer.num_heads, layer.num_kv_heads, layer.num_kv_heads], dim=1)
    return attend(layer.layer, q, k, v)


def _weight(linear: Linear) -> tuple[tuple[np.ndarray, ...], Kind] | None:
    weight = linear.quantized
    if not isinstance(weight, TiledWeight) or weight.shape[1] % GROUP:
        return None
    bias = NOTHING if linear.bias is None else linear.bias.numpy()
    return (*weight.arrays(), bias), (weight.bits, weight.by_group)
