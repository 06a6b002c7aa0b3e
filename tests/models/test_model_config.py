"""config.json in both dialects, and everything in it that is refused by name."""

import subprocess
import sys
from typing import Any

import pytest
from transformers import LlamaConfig, Qwen3Config

from minillm_serve.models.config import ModelConfig
from minillm_serve.models.errors import ModelError
from minillm_serve.models.rope_config import RopeConfig

# Llama-3.1-8B's config.json, as it was published.
LLAMA31: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def changed(**changes: Any) -> dict[str, Any]:
    """Llama 3.1's config with some keys replaced; a None removes the key."""
    merged = {**LLAMA31, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def test_the_old_dialect_is_understood() -> None:
    config = ModelConfig.from_hf(LLAMA31)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (32, 32, 8)
    assert config.head_dim == 128
    assert config.rope == RopeConfig(500000.0, "llama3", 8.0, 1.0, 4.0, 8192)
    assert config.eos_token_ids == (128001, 128008, 128009)
    assert config.torch_dtype == "bfloat16"
    assert config.kv_bytes_per_token(2) == 131072


def test_the_new_dialect_means_the_same() -> None:
    old = ModelConfig.from_hf(LLAMA31)
    new = ModelConfig.from_hf(LlamaConfig(**LLAMA31))
    assert new == old


def test_the_oldest_key_for_the_rope_type_is_understood() -> None:
    config = ModelConfig.from_hf(changed(rope_scaling={"type": "linear", "factor": 2.0}))
    assert config.rope == RopeConfig(500000.0, "linear", 2.0)


def test_defaults_that_a_config_leaves_out_are_those_of_transformers() -> None:
    bare = {"model_type": "qwen3", "num_hidden_layers": 2, "vocab_size": 10}
    bare |= {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 32}
    ours, theirs = ModelConfig.from_hf(bare), Qwen3Config(**bare)
    assert ours.head_dim == theirs.head_dim == 128
    assert ours.num_kv_heads == theirs.num_key_value_heads == 32
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    assert ours.sliding_windows == (None, None)
    assert ours.bos_token_id is None
    assert ours.eos_token_ids == ()


def test_end_of_text_tokens_are_the_union_of_both_files() -> None:
    config = ModelConfig.from_hf(changed(eos_token_id=5), {"eos_token_id": [7, 5]})
    assert config.eos_token_ids == (5, 7)


def test_a_token_id_of_zero_is_a_token_id() -> None:
    config = ModelConfig.from_hf(changed(eos_token_id=0, bos_token_id=0))
    assert config.eos_token_ids == (0,)
    assert config.bos_token_id == 0


def test_mistral_without_the_key_has_its_classs_window_in_every_layer() -> None:
    config = ModelConfig.from_hf(changed(architectures=["MistralForCausalLM"]))
    assert config.sliding_windows == (4096,) * 32


def test_a_window_of_null_is_no_window() -> None:
    config = {**LLAMA31, "architectures": ["MistralForCausalLM"], "sliding_window": None}
    assert ModelConfig.from_hf(config).sliding_windows == (None,) * 32


def test_qwen_has_windows_only_where_it_uses_them() -> None:
    qwen = {**LLAMA31, "architectures": ["Qwen2ForCausalLM"], "sliding_window": 9}
    assert ModelConfig.from_hf(qwen).sliding_windows == (None,) * 32
    used = {**qwen, "use_sliding_window": True, "max_window_layers": 30}
    assert ModelConfig.from_hf(used).sliding_windows == (None,) * 30 + (9, 9)


REFUSALS = {
    "an unknown architecture": (
        {"architectures": ["GemmaForCausalLM"], "model_type": "gemma"},
        "GemmaForCausalLM.*LlamaForCausalLM, MistralForCausalLM",
    ),
    "a head of another kind": (
        {"architectures": ["LlamaForSequenceClassification"]},
        "LlamaForSequenceClassification",
    ),
    "a mixture of experts": (
        {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8},
        r"MixtralForCausalLM.*mixture of experts.*Qwen3ForCausalLM",
    ),
    "a mixture of experts by name": (
        {"architectures": ["Qwen3MoeForCausalLM"]},
        "Qwen3MoeForCausalLM.*mixture of experts",
    ),
    "no architecture at all": ({"architectures": None, "model_type": None}, "names no architec"),
    "gptq": ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, r"\(gptq\).*GGUF"),
    "awq": ({"quantization_config": {"quant_method": "awq"}}, r"\(awq\)"),
    "fp8": ({"quantization_config": {"quant_method": "fp8"}}, r"\(fp8\)"),
    "bitsandbytes": ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
    "yarn": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'.*default, linear"),
    "longrope": ({"rope_scaling": {"type": "longrope"}}, "'longrope'"),
    "dynamic rope": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    "rope by kind of layer": (
        {"rope_scaling": None, "rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "full_attention",
    ),
    "linear rope without a factor": ({"rope_scaling": {"type": "linear"}}, "factor.*None"),
    "half a head rotated": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    "a missing number": ({"hidden_size": None}, "lacks hidden_size"),
    "a number that is none": ({"num_hidden_layers": "32"}, "num_hidden_layers is '32'"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    "heads that do not divide": ({"num_key_value_heads": 5}, "5.*multiple"),
    "an odd head": ({"head_dim": 63}, "head_dim is 63"),
    "mistral with kinds of layers": (
        {"architectures": ["MistralForCausalLM"], "layer_types": ["full_attention"] * 32},
        "layer_types",
    ),
    "a kind of layer that is not known": (
        {
            "architectures": ["Qwen2ForCausalLM"],
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["linear_attention"] * 32,
        },
        "linear_attention",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_not_supported_is_refused_by_name(case: str) -> None:
    changes, message = REFUSALS[case]
    with pytest.raises(ModelError, match=message):
        ModelConfig.from_hf(changed(**changes))


def test_configs_are_read_without_torch() -> None:
    code = "import sys, minillm_serve.models.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
