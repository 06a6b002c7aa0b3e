"""The supported architectures, and the few facts by which they differ.

Llama, Mistral, Qwen2 and Qwen3 are one transformer. What tells them apart is where a bias or a norm
sits and how a sliding window is announced, and each of these is a line here instead of a class.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """How one Hugging Face architecture reads its config.

    Attributes:
        name: the class name in ``config.json``'s ``architectures``.
        model_type: ``config.json``'s ``model_type``.
        attention_bias: ``"config"`` follows the key ``attention_bias`` (for q, k, v and o alike),
            ``"qkv"`` always has a bias on q, k, v and never on o, ``"none"`` never has one.
        mlp_bias: whether the key ``mlp_bias`` is obeyed.
        qk_norm: whether queries and keys are RMS-normalised head by head.
        windows: ``"none"``, ``"all"`` (``sliding_window`` holds in every layer) or ``"by_layer"``
            (``use_sliding_window`` with ``layer_types`` or ``max_window_layers``).
        defaults: what transformers assumes where ``config.json`` says nothing.
    """

    name: str
    model_type: str
    attention_bias: str
    mlp_bias: bool
    qk_norm: bool
    windows: str
    defaults: dict[str, int]


ARCHITECTURES = (
    Architecture(
        name="LlamaForCausalLM",
        model_type="llama",
        attention_bias="config",
        mlp_bias=True,
        qk_norm=False,
        windows="none",
        defaults={"max_position_embeddings": 2048},
    ),
    Architecture(
        name="MistralForCausalLM",
        model_type="mistral",
        attention_bias="none",
        mlp_bias=False,
        qk_norm=False,
        windows="all",
        defaults={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
        },
    ),
    Architecture(
        name="Qwen2ForCausalLM",
        model_type="qwen2",
        attention_bias="qkv",
        mlp_bias=False,
        qk_norm=False,
        windows="by_layer",
        defaults={
            "max_position_embeddings": 32768,
            "num_key_value_heads": 32,
            "sliding_window": 4096,
            "max_window_layers": 28,
        },
    ),
    Architecture(
        name="Qwen3ForCausalLM",
        model_type="qwen3",
        attention_bias="config",
        mlp_bias=False,
        qk_norm=True,
        windows="by_layer",
        defaults={
            "max_position_embeddings": 32768,
            "num_key_value_heads": 32,
            "head_dim": 128,
            "sliding_window": 4096,
            "max_window_layers": 28,
        },
    ),
)


def supported() -> str:
    """The names of the supported architectures, for messages."""
    return ", ".join(architecture.name for architecture in ARCHITECTURES)


def find(name: str | None, model_type: str | None) -> Architecture | None:
    """The architecture of that class name; where no class is named, of that ``model_type``."""
    for architecture in ARCHITECTURES:
        if name == architecture.name or (name is None and model_type == architecture.model_type):
            return architecture
    return None
