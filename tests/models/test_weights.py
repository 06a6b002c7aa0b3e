"""Checkpoints that do not fit their config, or are damaged, are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from minillm_serve.models.errors import ModelError
from minillm_serve.models.loader import load_config, load_model, load_tokenizer
from tests.models.tiny import random_model, save

FILE = "model.safetensors"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(random_model("llama"), tmp_path)


def edit(directory: Path, **changes: Tensor | None) -> None:
    """Replaces, adds or (None) removes tensors; double underscores stand for dots."""
    tensors = load_file(directory / FILE)
    for key, value in changes.items():
        name = key.replace("__", ".")
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    save_file(tensors, directory / FILE, metadata={"format": "pt"})


def configure(directory: Path, **changes: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def load(directory: Path) -> Any:
    return load_model(directory, dtype=None, device="cpu")


def test_a_missing_tensor_is_named(checkpoint: Path) -> None:
    edit(checkpoint, model__layers__1__self_attn__k_proj__weight=None)
    with pytest.raises(ModelError, match=r"lacks 1 .*model\.layers\.1\.self_attn\.k_proj\.weight"):
        load(checkpoint)


def test_a_layer_too_few_is_named(checkpoint: Path) -> None:
    configure(checkpoint, num_hidden_layers=4)
    with pytest.raises(ModelError, match=r"lacks 9 .*model\.layers\.3\..*and 3 more"):
        load(checkpoint)


def test_an_unexpected_tensor_is_named(checkpoint: Path) -> None:
    edit(checkpoint, model__layers__0__self_attn__q_proj__bias=torch.zeros(64))
    with pytest.raises(ModelError, match=r"beyond.*model\.layers\.0\.self_attn\.q_proj\.bias"):
        load(checkpoint)


def test_a_wrong_shape_is_named_with_both_shapes(checkpoint: Path) -> None:
    edit(checkpoint, model__layers__2__mlp__up_proj__weight=torch.zeros(80, 47))
    with pytest.raises(ModelError, match=r"layers\.2\.mlp\.up_proj.*\[80, 47\].*\[80, 48\]"):
        load(checkpoint)


def test_a_vector_where_a_matrix_belongs_is_not_broadcast(checkpoint: Path) -> None:
    edit(checkpoint, model__layers__0__self_attn__v_proj__weight=torch.zeros(48))
    with pytest.raises(ModelError, match=r"v_proj.*\[48\].*\[32, 48\]"):
        load(checkpoint)


def test_rotary_frequencies_of_old_checkpoints_are_ignored(checkpoint: Path) -> None:
    edit(checkpoint, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(8))
    load(checkpoint)


def test_a_redundant_tied_head_is_ignored_and_another_one_refused(tmp_path: Path) -> None:
    save(random_model("qwen2", tie_word_embeddings=True), tmp_path)
    embedding = load_file(tmp_path / FILE)["model.embed_tokens.weight"]
    edit(tmp_path, lm_head__weight=embedding.clone())
    load(tmp_path)
    edit(tmp_path, lm_head__weight=embedding + 1)
    with pytest.raises(ModelError, match=r"lm_head\.weight differs.*tie_word_embeddings to false"):
        load(tmp_path)


def test_an_untied_model_without_a_head_is_refused(tmp_path: Path) -> None:
    save(random_model("qwen2", tie_word_embeddings=True), tmp_path)
    configure(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"lacks 1 tensor\(s\): lm_head\.weight"):
        load(tmp_path)


def test_weights_that_are_not_floats_are_refused(checkpoint: Path) -> None:
    edit(checkpoint, model__norm__weight=torch.ones(48, dtype=torch.int8))
    with pytest.raises(ModelError, match=r"model\.norm\.weight.*I8.*quantized"):
        load(checkpoint)


def test_a_truncated_file_is_named(checkpoint: Path) -> None:
    file = checkpoint / FILE
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read.*fetch it again"):
        load(checkpoint)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save(random_model("llama"), tmp_path, max_shard_size="20KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ModelError, match=shard.name):
        load(tmp_path)


def test_an_index_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    save(random_model("llama"), tmp_path, max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": "../x.safetensors"}}))
    with pytest.raises(ModelError, match="outside its directory"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": []}', '{"weight_map": {"a": 3}}'])
def test_a_broken_index_is_named(text: str, tmp_path: Path) -> None:
    save(random_model("llama"), tmp_path, max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(ModelError, match=index.name):
        load(tmp_path)


def test_pickled_weights_are_refused_with_the_reason(checkpoint: Path) -> None:
    (checkpoint / FILE).rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled ones, which can run code"):
        load(checkpoint)


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_config(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_a_broken_config_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_config(tmp_path)


def test_a_missing_tokenizer_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer can be read.*tokenizer\.json"):
        load_tokenizer(checkpoint)


def test_a_dtype_that_cannot_be_run_is_refused(checkpoint: Path) -> None:
    configure(checkpoint, dtype="float8_e4m3fn")
    with pytest.raises(ModelError, match=r"float8_e4m3fn.*bfloat16"):
        load(checkpoint)
