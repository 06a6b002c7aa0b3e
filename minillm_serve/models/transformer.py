"""The transformer: Llama, Mistral, Qwen2 and Qwen3, told apart by their config alone.

Tokens of all sequences of a step lie side by side in one flat row ``[T, ...]``: there is no batch
dimension and no padding. Who may look at whom, and where keys and values are kept, is the business
of the ``attend`` that the caller hands in; the model knows neither caches nor batches.

Symbols in shapes: T tokens, H query heads, H_kv key/value heads, D head dim, V vocabulary.
"""

from abc import ABC, abstractmethod
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from minillm_serve.models.config import ModelConfig
from minillm_serve.models.functional import rotate, silu_mul
from minillm_serve.models.layers import Embedding, Linear, Placement, Quantizable, RMSNorm
from minillm_serve.models.rope import inverse_frequencies, rotation


class Attend(Protocol):
    """Stores a layer's new keys and values, and attends to all that the queries may see."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q ``[T, H, D]``, k and v ``[T, H_kv, D]`` -> ``[T, H, D]``.

        q and k are rotated already; all three are strided views of wider tensors. The scale
        (1/sqrt(D)), causality and the layer's sliding window are applied here.
        """
        ...


class FusedAttend(ABC):
    """An ``Attend`` that begins at the projection, and norms, rotates and stores in one go."""

    @abstractmethod
    def attend_qkv(self, layer: int, qkv: Tensor, qk_norm: RMSNorm | None) -> Tensor:
        """qkv ``[T, H + 2 H_kv, D]``, as it is projected -> ``[T, H, D]``."""


class CacheArrays(NamedTuple):
    """An attention over a KV cache on a CPU, as a kernel needs it that attends by itself.

    Attributes:
        caches: [N, 2] int64, addresses of each layer's key and value caches, float32
        shape: ``[num_blocks, H_kv, P, D]``.
        slots: [T] int64, where each row's key and value go.
        block_tables: [S, W] int32.
        rows: [4, T] int64, see ``paged_decode``: row, sequence, tokens seen, tokens seen before.
        scale: multiplies the scores.
        windows: [N] int64, most tokens a row may see in each layer.
    """

    caches: np.ndarray
    shape: tuple[int, int, int, int]
    slots: np.ndarray
    block_tables: np.ndarray
    rows: np.ndarray
    scale: float
    windows: np.ndarray


class OpenAttend(ABC):
    """An ``Attend`` that shows what it would work on, for kernels that do many layers in one go."""

    @abstractmethod
    def arrays(self) -> CacheArrays | None:
        """What all layers attend to; None if not every row attends its context alone."""


class RunLayers(Protocol):
    """Runs all layers of a model, or the first few, in a way of its own."""

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend | FusedAttend, count: int
    ) -> tuple[Tensor, Tensor]:
        """What the last layer added to the residual stream, and the stream before that.

        Args:
            x: ``[T, hidden]``, the embeddings.
            cos, sin: ``[T, 1, D]``.
            attend: what happens between the tokens.
            count: of layers.
        """
        ...


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) around ``attend``."""

    def __init__(self, config: ModelConfig, layer: int, place: Placement) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.num_heads, self.num_kv_heads = config.num_heads, config.num_kv_heads
        # Query and key heads side by side: what both undergo, they undergo in one operation.
        self.num_qk_heads = config.num_heads + config.num_kv_heads
        rows = (self.num_qk_heads + config.num_kv_heads) * config.head_dim
        inner = config.num_heads * config.head_dim
        self.qkv_proj = Linear(config.hidden_size, rows, config.qkv_bias, place)
        self.o_proj = Linear(inner, config.hidden_size, config.o_bias, place)
        self.qk_norm = None
        if config.qk_norm:
            shape = (self.num_qk_heads, config.head_dim)
            self.qk_norm = RMSNorm(shape, config.rms_norm_eps, place)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend | FusedAttend) -> Tensor:
        """x ``[T, hidden]``, cos and sin ``[T, 1, D]`` -> ``[T, hidden]``."""
        qkv = self.qkv_proj(x).view(x.shape[0], -1, self.head_dim)
        if isinstance(attend, FusedAttend):
            return self.o_proj(attend.attend_qkv(self.layer, qkv, self.qk_norm).flatten(1))
        qk, v = qkv.split([self.num_qk_heads, self.num_kv_heads], dim=1)
        if self.qk_norm is not None:
            qk = self.qk_norm(qk)
        q, k = rotate(qk, cos, sin).split([self.num_heads, self.num_kv_heads], dim=1)
        return self.o_proj(attend(self.layer, q, k, v).flatten(1))


class MLP(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv:2002.05202): ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_up_proj = Linear(hidden, 2 * inner, config.mlp_bias, place)
        self.down_proj = Linear(inner, hidden, config.mlp_bias, place)

    def forward(self, x: Tensor) -> Tensor:
        """``[T, hidden] -> [T, hidden]``."""
        return self.down_proj(silu_mul(self.gate_up_proj(x)))


class DecoderLayer(nn.Module):
    """Attention, then MLP; each reads a norm of the residual stream and adds to the stream."""

    def __init__(self, config: ModelConfig, layer: int, place: Placement) -> None:
        super().__init__()
        shape = (config.hidden_size,)
        self.input_norm = RMSNorm(shape, config.rms_norm_eps, place)
        self.attention = Attention(config, layer, place)
        self.post_attention_norm = RMSNorm(shape, config.rms_norm_eps, place)
        self.mlp = MLP(config, place)

    def forward(
        self,
        x: Tensor,
        residual: Tensor,
        cos: Tensor,
        sin: Tensor,
        attend: Attend | FusedAttend,
    ) -> tuple[Tensor, Tensor]:
        """What the layer before added, and the residual stream before that; both once more.

        Adding and reading the norm go together, so the sum is left to whoever reads it.
        """
        x, residual = self.input_norm.after_adding(x, residual)
        x = self.attention(x, cos, sin, attend)
        x, residual = self.post_attention_norm.after_adding(x, residual)
        return self.mlp(x), residual


class Transformer(nn.Module):
    """A decoder-only language model; its parameters are empty until ``weights.fill`` fills them.

    Args:
        config: the shape.
        dtype: of all parameters, and of what flows between layers.
        device: where it is computed.

    Attributes:
        run_layers: takes the place of the layers' own `forward`, with the same result.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        place = Placement(dtype, device)
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(
            DecoderLayer(config, layer, place) for layer in range(config.num_layers)
        )
        self.run_layers: RunLayers = self._run_layers
        self.norm = RMSNorm((config.hidden_size,), config.rms_norm_eps, place)
        meta = Placement(dtype, torch.device("meta"))
        tied = config.tie_word_embeddings
        self.lm_head = Linear(
            config.hidden_size, config.vocab_size, bias=False, place=meta if tied else place
        )
        if tied:
            self.lm_head.share(self.embedding)
        # Not a buffer on purpose: `model.to(bfloat16)` would round the frequencies, and with them
        # every position beyond a few hundred.
        frequencies = inverse_frequencies(config.rope, config.head_dim)
        self.frequencies = frequencies.to(device)

    def pack(self) -> None:
        """Prepares filled weights for a CPU; one by one, so that no second copy of them is made.

        A head that is tied to the embedding keeps its layout: the embedding reads it by rows.
        """
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack(relayout=module.weight is not self.embedding.weight)

    @property
    def bytes_read(self) -> int:
        """Bytes of weight matrices that a step of few rows reads: codes where there are any."""
        return sum(module.bytes_read for module in self.modules() if isinstance(module, Linear))

    @property
    def device(self) -> torch.device:
        """Where it is computed, whatever became of single weights."""
        return self.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of what flows between layers."""
        return self.norm.weight.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of everything that it keeps; what two layers share is counted once."""
        kept = {
            id(parameter): parameter.nbytes
            for parameter in self.parameters()
            if not parameter.is_meta
        }
        for module in self.modules():
            if isinstance(module, Quantizable) and module.quantized is not None:
                kept[id(module.quantized)] = module.quantized.nbytes
            if isinstance(module, Linear) and module.coded is not None:
                kept[id(module.coded)] = module.coded.nbytes
        return sum(kept.values())

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        attend: Attend | FusedAttend,
        num_layers: int | None = None,
    ) -> Tensor:
        """Runs all layers, or the first few, over the tokens of one step.

        Args:
            token_ids: int64 ``[T]``.
            positions: int64 ``[T]``, each token's place in its own sequence, from 0.
            attend: what happens between the tokens.
            num_layers: run so many layers only, then the final norm; by default all.

        Returns:
            ``[T, hidden]``, after the final norm.
        """
        x = self.embedding(token_ids)
        cos, sin = rotation(positions, self.frequencies, x.dtype)
        count = len(self.layers) if num_layers is None else num_layers
        x, residual = self.run_layers(x, cos, sin, attend, count)
        return self.norm.after_adding(x, residual)[0]

    def _run_layers(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend | FusedAttend, count: int
    ) -> tuple[Tensor, Tensor]:
        residual = torch.zeros_like(x)
        for layer in islice(self.layers, count):
            x, residual = layer(x, residual, cos, sin, attend)
        return x, residual

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """``[R, hidden] -> [R, V]``; R is as a rule far smaller than T."""
        return self.lm_head(hidden)
