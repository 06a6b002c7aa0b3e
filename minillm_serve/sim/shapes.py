"""What the cost model has to know about a model and about the machine it runs on.

Pure Python: nothing here imports torch, so that a million simulated requests cost no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minillm_serve.models.config import ModelConfig


@dataclass(frozen=True)
class Hardware:
    """One accelerator (or CPU) as three numbers: how much it holds, moves and computes.

    Attributes:
        name: short name used in plots and dropdowns.
        memory_bytes: bytes a program really sees (what ``torch.cuda`` reports), which is a little
            less than what is printed on the box.
        bandwidth_bytes_s: peak memory read bandwidth, bytes/s.
        flops_fp16_dense: peak fp16/bf16 matmul FLOP/s with fp32 accumulation, *without* the 2x
            that vendors quote for structured sparsity: LLM weights are not sparse in that way.
        flops_fp32: peak fp32 FLOP/s outside the tensor cores (no TF32).
        source: where the numbers come from.
        year: year in which the product was announced (or measured).
        advertised_gb: the size printed on the box, in the vendor's 'GB'; 0 if there is no box.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_s: float
    flops_fp16_dense: float
    flops_fp32: float
    source: str
    year: int
    advertised_gb: float = 0.0

    def __post_init__(self) -> None:
        for field in ("memory_bytes", "bandwidth_bytes_s", "flops_fp16_dense", "flops_fp32"):
            if getattr(self, field) <= 0:
                raise ValueError(
                    f"Hardware {self.name!r}: {field} is {getattr(self, field)!r}; "
                    f"give a positive number"
                )

    def flops(self, bits: float) -> float:
        """Peak FLOP/s [FLOP/s] for weights of ``bits`` bits.

        Weights under 16 bits are unpacked to fp16 before the multiplication (weight-only
        quantization), so they run at the fp16 rate: fewer bytes, the same arithmetic.
        """
        return self.flops_fp32 if bits > 16 else self.flops_fp16_dense


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder-only transformer with a gated MLP, as the numbers that cost depends on.

    Symbols in brackets are the course's: N layers, H query heads, H_kv KV heads, D head dim.

    Attributes:
        name: short name used in plots and dropdowns.
        num_layers: [N].
        hidden_size: width of the residual stream.
        intermediate_size: width of the gated MLP.
        num_heads: query heads [H].
        num_kv_heads: key/value heads [H_kv]; H_kv < H is grouped-query attention.
        head_dim: [D].
        vocab_size: rows of the embedding table.
        tie_word_embeddings: the output head is the embedding table itself.
        qkv_bias: q, k and v projections carry a bias (Qwen2).
        qk_norm: an RMSNorm of size D on q and on k in each layer (Qwen3).
        o_bias: the attention's output projection carries a bias.
        mlp_bias: the three MLP projections carry a bias.
        source: where the numbers come from.
        year: year of release.
        published_parameters: total that the publisher's checkpoint states, 0 if unknown.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    source: str = ""
    year: int = 0
    published_parameters: int = 0

    def __post_init__(self) -> None:
        for field in (
            "num_layers",
            "hidden_size",
            "intermediate_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "vocab_size",
        ):
            if getattr(self, field) < 1:
                raise ValueError(
                    f"ModelShape {self.name!r}: {field} is {getattr(self, field)!r}; "
                    f"give a whole number of 1 or more"
                )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"ModelShape {self.name!r}: num_heads={self.num_heads} is not a multiple of "
                f"num_kv_heads={self.num_kv_heads}; every KV head serves the same number of "
                f"query heads"
            )

    @classmethod
    def from_model_config(cls, config: ModelConfig, name: str = "") -> ModelShape:
        """The shape of a model that the engine has loaded (a `models.config.ModelConfig`)."""
        return cls(
            name=name or config.architecture,
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            vocab_size=config.vocab_size,
            tie_word_embeddings=config.tie_word_embeddings,
            qkv_bias=config.qkv_bias,
            qk_norm=config.qk_norm,
            o_bias=config.o_bias,
            mlp_bias=config.mlp_bias,
            source="the loaded model's config.json",
        )

    @property
    def matmul_parameters(self) -> int:
        """Parameters that every token is multiplied with: all projections and the output head."""
        q_width = self.num_heads * self.head_dim
        kv_width = self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * q_width + 2 * kv_width)
        mlp = 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * (attention + mlp) + self.hidden_size * self.vocab_size

    @property
    def small_parameters(self) -> int:
        """Norms and biases: a rounding error in bytes, but the published totals count them."""
        q_width = self.num_heads * self.head_dim
        kv_width = self.num_kv_heads * self.head_dim
        layer = 2 * self.hidden_size
        layer += (q_width + 2 * kv_width) * self.qkv_bias
        layer += self.hidden_size * self.o_bias
        layer += (2 * self.intermediate_size + self.hidden_size) * self.mlp_bias
        layer += 2 * self.head_dim * self.qk_norm
        return self.num_layers * layer + self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters; a tied embedding table is counted once."""
        embedding = 0 if self.tie_word_embeddings else self.hidden_size * self.vocab_size
        return self.matmul_parameters + self.small_parameters + embedding

    @property
    def streamed_parameters(self) -> int:
        """Parameters that one step reads from memory, whatever the batch.

        An untied input embedding table is not among them: a step looks up a few of its rows.
        """
        return self.matmul_parameters + self.small_parameters

    def weight_bytes(self, bits: float = 16, group_size: int = 0) -> int:
        """Bytes of all weights at ``bits`` bits each.

        Args:
            bits: bits per weight (32, 16, 8, 4).
            group_size: with group-wise quantization, weights that share one fp16 scale; 0 leaves
                the scales out.
        """
        return _packed_bytes(self.num_parameters, bits, group_size)

    def streamed_weight_bytes(self, bits: float = 16) -> int:
        """Bytes of weights that one decode step has to read, see `streamed_parameters`."""
        return _packed_bytes(self.streamed_parameters, bits, 0)

    def kv_bytes_per_token(self, dtype_bytes: float = 2) -> int:
        """Bytes of keys and values that one token leaves in the cache: 2 * N * H_kv * D * bytes."""
        if dtype_bytes <= 0:
            raise ValueError(
                f"dtype_bytes is {dtype_bytes!r}; give bytes per element: 4, 2, 1 or 0.5"
            )
        return round(2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes)

    def flops_per_token(self, context: int) -> float:
        """FLOPs to compute one token that attends to ``context`` tokens (itself included).

        Two FLOPs (multiply, add) per matmul weight; attention adds q.k and p.v, 2 * D each per
        query head, layer and context token: 4 * N * H * D * context.
        """
        if context < 0:
            raise ValueError(f"context is {context}; give a number of tokens of 0 or more")
        attention = 4 * self.num_layers * self.num_heads * self.head_dim * context
        return 2 * self.matmul_parameters + attention


@dataclass(frozen=True)
class LatentShape:
    """Multi-head latent attention (MLA): one compressed vector per token and layer.

    Instead of K and V of every head, a layer caches a latent of ``kv_lora_rank`` numbers, from
    which all heads' K and V are rebuilt, plus ``rope_dim`` numbers that carry the position
    (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1).
    """

    name: str
    num_layers: int
    kv_lora_rank: int
    rope_dim: int
    num_heads: int
    head_dim: int
    source: str = ""
    year: int = 0

    def kv_bytes_per_token(self, dtype_bytes: float = 2) -> int:
        """Bytes one token leaves in the cache: N * (kv_lora_rank + rope_dim) * bytes."""
        return round(self.num_layers * (self.kv_lora_rank + self.rope_dim) * dtype_bytes)

    @property
    def equivalent_kv_heads(self) -> float:
        """KV heads that plain GQA with this head_dim could afford in the same bytes."""
        return (self.kv_lora_rank + self.rope_dim) / (2 * self.head_dim)


def _packed_bytes(count: int, bits: float, group_size: int) -> int:
    if bits <= 0 or group_size < 0:
        raise ValueError(
            f"bits={bits!r}, group_size={group_size!r}; bits must be above 0 (32, 16, 8, 4) and "
            f"group_size 0 or more"
        )
    scales = -(-count // group_size) * 2 if group_size else 0
    return -(-round(count * bits) // 8) + scales
