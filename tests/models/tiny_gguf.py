"""Tiny GGUF files: written from a transformers model as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers import PreTrainedModel
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "Ċ Ċ", "h i", "Ġ hi"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>{% endfor %}"
)
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def vocabulary() -> list[str]:
    """Three special tokens, all bytes, four merges."""
    return [*SPECIAL, *bytes_to_unicode().values(), *(m.replace(" ", "") for m in MERGES)]


def write(
    model: PreTrainedModel,
    file: Path,
    *,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    drop: str | None = None,
    pre: str = "smollm",
    kinds: Callable[[str], str] = lambda name: "F32",
) -> Path:
    """Writes a GGUF, in float32 unless told otherwise.

    Args:
        model: a tiny llama, qwen2 or qwen3 whose vocabulary is ``vocabulary()``.
        file: where to.
        metadata: more of it; keys without the architecture's prefix get it.
        tensors: more of them.
        drop: a tensor to leave out, by its GGUF name.
        pre: the name of the rule that splits text.
        kinds: the type of each matrix, by its GGUF name.
    """
    config, architecture = model.config, model.config.model_type
    writer = GGUFWriter(file, architecture)
    _describe(writer, config, pre)
    for key, value in (metadata or {}).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{architecture}.{key}", value)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = _permuted(name, tensor.numpy(), config)
        if _gguf_name(name) != drop:
            kind = GGMLQuantizationType[kinds(_gguf_name(name)) if values.ndim == 2 else "F32"]
            if kind != GGMLQuantizationType.F32:
                values = quantize(values, kind)
            writer.add_tensor(_gguf_name(name), values, raw_dtype=kind)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _describe(writer: GGUFWriter, config: Any, pre: str) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocabulary())
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(vocabulary()) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _gguf_name(name: str) -> str:
    stem, _, leaf = name.rpartition(".")
    if stem in NAMES:
        return f"{NAMES[stem]}.{leaf}"
    _, _, number, inner = stem.split(".", 3)
    return f"blk.{number}.{NAMES[inner]}.{leaf}"


def _permuted(name: str, values: np.ndarray, config: Any) -> np.ndarray:
    """llama.cpp rotates neighbours, not halves, in Llamas: rows of q and k are interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if config.model_type != "llama" or count is None:
        return values
    halves = values.reshape(count, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
