"""The layers of a quantized model on a CPU, in a few calls: one a step, or one an attention.

It computes what `transformer.DecoderLayer` does, with the same weights; a step of few rows spends
its time on weights then, and not on calls.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from minillm_serve.kernels.cpu_layers import Kinds, between, feed_forward, projection
from minillm_serve.kernels.cpu_step import decode_layers
from minillm_serve.models.layers import Linear
from minillm_serve.models.quantized import GROUP
from minillm_serve.models.tiled import TiledWeight
from minillm_serve.models.transformer import (
    Attend,
    Attention,
    CacheArrays,
    DecoderLayer,
    FusedAttend,
    OpenAttend,
    Transformer,
)


class FusedLayers:
    """Runs the layers of a model; see `Transformer.forward` for what flows between them.

    Args:
        layers: of the model; they are quantized, and do not change any more.
        kinds: of each layer's weights.
    """

    def __init__(self, layers: list[DecoderLayer], kinds: list[Kinds]) -> None:
        self._attentions = [layer.attention for layer in layers]
        self._table = np.array([_addresses(layer) for layer in layers], np.int64)
        self._eps = layers[0].input_norm.eps
        self._first = projection(kinds[0])
        self._between = [between(one, two) for one, two in pairwise(kinds)]
        self._last = [feed_forward(kind) for kind in kinds]
        attention = self._attentions[0]
        group = attention.num_heads // attention.num_kv_heads
        self._all = None
        if len(set(kinds)) == 1:
            self._all = decode_layers(kinds[0], attention.head_dim, group)

    @classmethod
    def of(cls, model: Transformer) -> "FusedLayers | None":
        """For a model that is quantized and on a CPU; None for any other one."""
        layers = [layer for layer in model.layers if isinstance(layer, DecoderLayer)]
        kinds = [kind for kind in map(_kinds, layers) if kind is not None]
        return cls(layers, kinds) if len(kinds) == len(model.layers) else None

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend | FusedAttend, count: int
    ) -> tuple[Tensor, Tensor]:
        """See `transformer.RunLayers`; at least one layer."""
        residual, out = torch.zeros_like(x), torch.empty_like(x)
        attention = self._attentions[0]
        heads = attention.num_qk_heads + attention.num_kv_heads
        qkv = np.empty((len(x), heads, attention.head_dim), np.float32)
        stream, turn = residual.numpy(), (self._eps, cos.numpy(), sin.numpy())
        arrays = attend.arrays() if isinstance(attend, OpenAttend) else None
        if arrays is not None and self._all is not None:
            cache = _unpacked(arrays, count)
            self._all(self._table[:count], x.numpy(), stream, *turn, qkv, *cache, out.numpy())
            return out, residual
        qk_heads = 0 if isinstance(attend, FusedAttend) else attention.num_qk_heads
        self._first(self._table[0], x.numpy(), stream, *turn, qk_heads, qkv)
        for layer in range(count):
            attended = _attend(attend, self._attentions[layer], torch.from_numpy(qkv))
            rows = attended.reshape(len(x), -1).numpy()
            if layer + 1 < count:
                qkv = np.empty_like(qkv)
                pair = (self._table[layer], self._table[layer + 1])
                self._between[layer](*pair, rows, stream, *turn, qk_heads, qkv)
            else:
                self._last[layer](self._table[layer], rows, stream, self._eps, out.numpy())
        return out, residual


def _attend(attend: Attend | FusedAttend, layer: Attention, qkv: Tensor) -> Tensor:
    if isinstance(attend, FusedAttend):
        return attend.attend_qkv(layer.layer, qkv, layer.qk_norm)
    q, k, v = qkv.split([layer.num_heads, layer.num_kv_heads, layer.num_kv_heads], dim=1)
    return attend(layer.layer, q, k, v)


def _unpacked(arrays: CacheArrays, count: int) -> tuple[object, ...]:
    """As `decode_layers` takes them, for the first layers."""
    fixed = (arrays.shape, arrays.slots, arrays.block_tables, *arrays.rows)
    return arrays.caches[:count], *fixed, np.float32(arrays.scale), arrays.windows[:count]


def _linears(layer: DecoderLayer) -> tuple[Linear, Linear, Linear, Linear]:
    attention, mlp = layer.attention, layer.mlp
    return attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj


def _kinds(layer: DecoderLayer) -> Kinds | None:
    """Of a layer's weights; None if one is not quantized, or is no whole groups wide."""
    kinds = []
    for linear in _linears(layer):
        weight = linear.quantized
        if not isinstance(weight, TiledWeight) or weight.shape[1] % GROUP:
            return None
        kinds.append((weight.bits, weight.by_group))
    return Kinds(*kinds)


def _addresses(layer: DecoderLayer) -> list[int]:
    """A row of the table of `kernels.cpu_layers`."""
    row = list[int]()
    for linear in _linears(layer):
        assert isinstance(linear.quantized, TiledWeight)
        row += linear.quantized.addresses
        row.append(0 if linear.bias is None else linear.bias.data_ptr())
    norms = (layer.input_norm, layer.post_attention_norm, layer.attention.qk_norm)
    row += [0 if norm is None else norm.weight.data_ptr() for norm in norms]
    return [*row, layer.mlp.down_proj.weight.shape[1]]
