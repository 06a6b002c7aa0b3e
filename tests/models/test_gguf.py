"""GGUF files become the same model, with the same tokens, or are refused by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from minillm_serve.models.config import ModelConfig
from minillm_serve.models.errors import ModelError
from minillm_serve.models.gguf import convert
from minillm_serve.models.loader import load_config, load_model, load_tokenizer
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.rope import inverse_frequencies
from tests.models.tiny import our_logits, prompt, random_model, their_logits
from tests.models.tiny_gguf import vocabulary, write

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINILLM_SERVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def model(model_type: str = "llama", **options: Any) -> PreTrainedModel:
    return random_model(model_type, vocab_size=len(vocabulary()), num_hidden_layers=2, **options)


def assert_same_logits(path: Path, theirs: PreTrainedModel, tokens: list[int]) -> None:
    ours = load_model(path, dtype=None, device="cpu")
    expected = their_logits(theirs, tokens)
    torch.testing.assert_close(our_logits(ours, tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_a_gguf_gives_the_logits_of_the_model_it_was_made_from(
    model_type: str, tmp_path: Path
) -> None:
    theirs = model(model_type, tie_word_embeddings=model_type == "qwen3")
    directory = resolve_model(write(theirs, tmp_path / "m.gguf", pre="gpt-2"))
    config = load_config(directory)
    assert config.rms_norm_eps == pytest.approx(1e-6)  # a GGUF has it in float32
    config = replace(config, rms_norm_eps=1e-6)
    assert config == ModelConfig.from_hf(theirs.config)
    assert config.torch_dtype == "float32"
    assert_same_logits(directory, theirs, prompt(60))


def test_linear_rope_scaling_is_kept(tmp_path: Path) -> None:
    theirs = model(rope_parameters=LINEAR)
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    file = write(theirs, tmp_path / "m.gguf", metadata=scaling)
    assert_same_logits(resolve_model(file), theirs, prompt(60))


def test_llama3_rope_scaling_is_recovered_from_its_divisors(tmp_path: Path) -> None:
    theirs = model(rope_parameters=LLAMA3)
    rope = ModelConfig.from_hf(theirs.config).rope
    plain = ModelConfig.from_hf(model(rope_parameters={**LLAMA3, "rope_type": "default"}).config)
    scaled, unscaled = inverse_frequencies(rope, 16), inverse_frequencies(plain.rope, 16)
    divisors = (unscaled / scaled).numpy()
    assert divisors.max() > 30
    file = write(theirs, tmp_path / "m.gguf", tensors={"rope_freqs.weight": divisors})
    directory = resolve_model(file)
    assert load_config(directory).rope == rope
    assert_same_logits(directory, theirs, prompt(60))


def test_digits_are_split_as_the_vocabulary_was_trained(tmp_path: Path) -> None:
    """What transformers' own conversion gets wrong: blanks before a number belong together."""
    tokenizer = load_tokenizer(resolve_model(write(model(), tmp_path / "m.gguf")))
    assert tokenizer.tokenize("hi\n\n1") == ["hi", "ĊĊ", "1"]
    assert tokenizer.tokenize("  12") == ["ĠĠ", "1", "2"]
    assert tokenizer.tokenize("  hi") == ["Ġ", "Ġhi"]


def test_special_tokens_and_the_chat_template_come_along(tmp_path: Path) -> None:
    """B115: the rendered chat is tokenized as it is, without another first token."""
    tokenizer = load_tokenizer(resolve_model(write(model(), tmp_path / "m.gguf")))
    text = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert text == "<|im_start|>user\nhi<|im_end|>"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert ids == tokenizer(text).input_ids
    assert (ids.count(1), ids[0], ids[-1]) == (1, 1, 2)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.model_max_length == 512


def test_a_file_is_converted_once_and_again_when_it_is_replaced(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(model(), tmp_path / "m.gguf")
    first = resolve_model(file)
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert resolve_model(file) == resolve_model(str(tmp_path)) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    assert capsys.readouterr().err.count("converting m.gguf") == 1
    other = write(model("qwen3"), file, pre="gpt-2")
    assert resolve_model(other) == first
    assert load_config(first).architecture == "Qwen3ForCausalLM"
    assert "its source has changed" in capsys.readouterr().err
    assert [entry.name for entry in cache.iterdir() if entry.is_dir()] == [first.name]


def test_a_directory_of_several_ggufs_asks_which_one(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"2 GGUF files \(a\.gguf, b\.gguf\)"):
        resolve_model(tmp_path)


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "experts": ({"metadata": {"expert_count": 8}}, "'llama' with experts.*Qwen3ForCausalLM"),
    "yarn": ({"metadata": {"rope.scaling.type": "yarn"}}, "rope scaling 'yarn'"),
    "half a head rotated": ({"metadata": {"rope.dimension_count": 8}}, "rotates 8 of a head's 16"),
    "a window": ({"metadata": {"attention.sliding_window": 64}}, "window of 64"),
    "a tensor of another kind": (
        {"tensors": {"blk.0.attn_q.bias": np.zeros(64)}},
        r"does not use: blk\.0\.attn_q\.bias",
    ),
    "frequencies of another kind": (
        {"tensors": {"rope_freqs.weight": np.linspace(1, 9, 8)}},
        "not Llama 3's",
    ),
    "a missing tensor": ({"drop": "blk.1.ffn_up.weight"}, r"lacks.*layers\.1\.mlp\.up_proj"),
    "an unknown way to split text": ({"pre": "new-rule"}, "'new-rule', which is not known"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_would_be_dropped_silently_is_refused_by_name(case: str, tmp_path: Path) -> None:
    options, message = REFUSALS[case]
    file = write(model(), tmp_path / "m.gguf", **options)
    with pytest.raises(ModelError, match=message):
        convert(file, tmp_path / "out")


def test_an_architecture_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    file = write(model(), tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes().replace(b"llama", b"falco"))
    with pytest.raises(ModelError, match=r"'falco', which is not supported.*LlamaForCausalLM"):
        convert(file, tmp_path / "out")


@pytest.mark.parametrize("size", [0, 3, 100, 5000, -1000])
def test_a_truncated_file_is_refused(size: int, tmp_path: Path) -> None:
    file = write(model(), tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"m\.gguf.*ownload it again"):
        resolve_model(file)
