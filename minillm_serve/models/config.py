"""What a model is, in numbers: ``config.json`` read, checked and made one of a kind.

Hugging Face configs come in two dialects (``rope_theta`` and ``rope_scaling``, or transformers 5's
``rope_parameters``) and leave out whatever equals a class's default. ``ModelConfig`` has everything
spelled out, and refuses by name what the transformer of this package does not compute.

This module imports no torch, so that the scheduler and the simulator can read configs too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minillm_serve.models.errors import ModelError
from minillm_serve.models.registry import Architecture, find, supported
from minillm_serve.models.rope_config import RopeConfig, read_rope
from minillm_serve.models.schemes import read_scheme

_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer.

    Attributes:
        architecture: the Hugging Face class name, such as ``"LlamaForCausalLM"``.
        vocab_size: rows of the embedding, V.
        hidden_size: width of the residual stream.
        intermediate_size: width inside the MLP.
        num_layers: N.
        num_heads: query heads, H.
        num_kv_heads: key and value heads, H_kv; H is a multiple of it.
        head_dim: D; H * D need not equal ``hidden_size``.
        max_position_embeddings: the longest sequence that the model was made for, in tokens.
        rms_norm_eps: added to the mean square in every norm.
        rope: the rotary position embedding.
        tie_word_embeddings: whether the output head is the embedding matrix.
        qkv_bias: whether q, k and v projections have a bias.
        o_bias: whether the attention's output projection has one.
        mlp_bias: whether the MLP's projections have one.
        qk_norm: whether q and k are RMS-normalised head by head (Qwen3).
        sliding_windows: one entry a layer: the number of positions a query sees, itself included,
            or None for all of them.
        hidden_act: always ``"silu"`` for now.
        bos_token_id: the token that begins a text, if there is one.
        eos_token_ids: every token that ends an answer.
        torch_dtype: the checkpoint's own dtype, such as ``"bfloat16"``.
        quantization: what its weights were saved in, if not in floats (``schemes``).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_windows: tuple[int | None, ...]
    hidden_act: str
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    torch_dtype: str
    quantization: str | None = None

    @classmethod
    def from_hf(cls, config: Any, generation_config: Any = None) -> ModelConfig:
        """Reads a Hugging Face config.

        Args:
            config: the dict in ``config.json``, or a ``PretrainedConfig``.
            generation_config: the dict in ``generation_config.json``, or a ``GenerationConfig``;
                its end-of-text tokens are added to the config's.

        Raises:
            ModelError: the architecture, or one of its options, is not supported; or a number is
                missing or impossible.
        """
        raw = _as_dict(config)
        architecture = _architecture(raw)
        _refuse_unsupported(raw, architecture)
        built = _read(raw, architecture, _as_dict(generation_config))
        built._check_shapes()
        return built

    def kv_bytes_per_token(self, dtype_bytes: float) -> float:
        """Bytes of KV cache that one token takes: ``2 * N * H_kv * D * dtype_bytes``.

        Args:
            dtype_bytes: bytes of one cached number; 4 for float32, 0.5 for 4-bit.
        """
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes

    def _check_shapes(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"num_attention_heads is {self.num_heads} and num_key_value_heads is "
                f"{self.num_kv_heads}: the first must be a multiple of the second. "
                "Correct config.json."
            )
        if self.head_dim <= 0 or self.head_dim % 2:
            raise ModelError(
                f"head_dim is {self.head_dim}: rotary embeddings turn pairs of numbers, so it must "
                "be even and positive. Correct config.json."
            )


def _as_dict(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return dict(config)
    return dict(config.to_dict())


def _architecture(raw: dict[str, Any]) -> Architecture:
    name = next(iter(raw.get("architectures") or ()), None)
    model_type = raw.get("model_type")
    if name is None and model_type is None:
        raise ModelError(
            "config.json names no architecture ('architectures' and 'model_type' are both "
            f"missing). Supported: {supported()}."
        )
    architecture = find(name, model_type)
    if architecture is not None:
        return architecture
    what = name or model_type
    experts = any(raw.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    kind = " (a mixture of experts)" if experts or "moe" in str(what).lower() else ""
    raise ModelError(
        f"architecture {what!r}{kind} is not supported. Choose a dense model of one of: "
        f"{supported()}."
    )


def _refuse_unsupported(raw: dict[str, Any], architecture: Architecture) -> None:
    missing = [key for key in _REQUIRED if raw.get(key) is None]
    if missing:
        raise ModelError(
            f"config.json lacks {', '.join(missing)}, which {architecture.name} needs. "
            "Fetch the model's directory again, whole."
        )
    activation = raw.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(
            f"hidden_act {activation!r} is not supported. Choose a model whose hidden_act is "
            "'silu', as in every released Llama, Mistral, Qwen2 and Qwen3."
        )


def _read(
    raw: dict[str, Any], architecture: Architecture, generation: dict[str, Any]
) -> ModelConfig:
    values = {**architecture.defaults, **raw}
    num_heads, hidden_size = _positive(raw, "num_attention_heads"), _positive(raw, "hidden_size")
    num_layers = _positive(raw, "num_hidden_layers")
    max_position = _positive(values, "max_position_embeddings")
    attention_bias = architecture.attention_bias == "config" and bool(raw.get("attention_bias"))
    return ModelConfig(
        architecture=architecture.name,
        vocab_size=_positive(raw, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_positive(raw, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=int(values.get("num_key_value_heads") or num_heads),
        head_dim=int(values.get("head_dim") or hidden_size // num_heads),
        max_position_embeddings=max_position,
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=read_rope(raw, max_position),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=attention_bias or architecture.attention_bias == "qkv",
        o_bias=attention_bias,
        mlp_bias=architecture.mlp_bias and bool(raw.get("mlp_bias")),
        qk_norm=architecture.qk_norm,
        sliding_windows=_windows(values, architecture, num_layers),
        hidden_act=raw.get("hidden_act", "silu"),
        bos_token_id=raw.get("bos_token_id"),
        eos_token_ids=_eos_token_ids(raw, generation),
        torch_dtype=_dtype_name(raw),
        quantization=read_scheme(raw),
    )


def _positive(raw: Mapping[str, Any], key: str) -> int:
    value = raw[key]
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ModelError(f"{key} is {value!r} in config.json: it must be a positive whole number.")
    return value


def _windows(
    values: dict[str, Any], architecture: Architecture, num_layers: int
) -> tuple[int | None, ...]:
    """One window a layer, the way the architecture announces it."""
    window = values.get("sliding_window")
    if architecture.windows == "none" or not window:
        return (None,) * num_layers
    kinds = values.get("layer_types")
    if architecture.windows == "all":
        if kinds and set(kinds) != {"sliding_attention"}:
            raise ModelError(
                f"{architecture.name} with layer_types {sorted(set(kinds))} is not supported: "
                "transformers ignores the key there, so it is not clear which layers have a window."
            )
        return (int(window),) * num_layers
    if not values.get("use_sliding_window", False):
        return (None,) * num_layers
    if kinds is None:
        first = int(values["max_window_layers"])
        return tuple(int(window) if layer >= first else None for layer in range(num_layers))
    unknown = sorted(set(kinds) - {"sliding_attention", "full_attention"})
    if unknown or len(kinds) != num_layers:
        raise ModelError(
            f"layer_types has {len(kinds)} entries for {num_layers} layers, of unknown kinds "
            f"{unknown}. Each layer must be 'full_attention' or 'sliding_attention'."
        )
    return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)


def _eos_token_ids(raw: dict[str, Any], generation: dict[str, Any]) -> tuple[int, ...]:
    """The union of both files' ids, config.json's first; they often differ (Llama 3, Qwen)."""
    found: list[int] = []
    for ids in (raw.get("eos_token_id"), generation.get("eos_token_id")):
        for token in ids if isinstance(ids, list | tuple) else [ids]:
            if token is not None and token not in found:
                found.append(int(token))
    return tuple(found)


def _dtype_name(raw: dict[str, Any]) -> str:
    """``"torch.bfloat16"`` and ``"bfloat16"`` are both written; no dtype at all means float32."""
    return str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
