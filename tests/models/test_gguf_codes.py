"""A quantized GGUF keeps its own codes: nothing passes through floats, and nothing changes."""

from pathlib import Path

import pytest
import torch

from minillm_serve.models import gguf_codes
from minillm_serve.models.gguf import convert
from minillm_serve.models.layers import Linear
from minillm_serve.models.loader import load_config, load_model
from minillm_serve.models.resolve import resolve_model
from tests.models.tiny import prompt, random_model
from tests.models.tiny_gguf import vocabulary, write

ENDS = ("token_embd.weight", "output.weight")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINILLM_SERVE_CACHE", str(tmp_path / "cache"))


def make(tmp_path: Path, kind: str, model_type: str = "llama") -> Path:
    """A GGUF as llama.cpp writes them: one type for all layers, Q8_0 for the ends."""
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    model = random_model(model_type, vocab_size=len(vocabulary()), **shape)
    file = tmp_path / f"{model_type}.{kind}.gguf"
    return write(model, file, kinds=lambda name: "Q8_0" if name in ENDS else kind)


def linears(model) -> list[Linear]:
    return [module for module in model.modules() if isinstance(module, Linear)]


@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
@pytest.mark.parametrize(("kind", "scheme"), [("Q4_0", "int4"), ("Q4_1", "int4"), ("Q8_0", "int8")])
def test_the_codes_stand_for_what_the_file_dequantizes_to(
    kind, scheme, model_type, tmp_path, monkeypatch
):
    file = make(tmp_path, kind, model_type)
    convert(file, floats := _new(tmp_path / "floats"))
    whole = load_model(floats, dtype=torch.float32, device="cpu")
    # Matrices never become floats on the way; norms are floats.
    read, took = gguf_codes._floats, list[str]()
    monkeypatch.setattr(gguf_codes, "_floats", lambda t: took.append(t.name) or read(t))
    gguf_codes.convert_codes(file, few := _new(tmp_path / "few"), scheme)
    assert took
    assert all("norm" in name for name in took)
    model = load_model(few, dtype=torch.float32, device="cpu")
    for ours, theirs in zip(linears(model), linears(whole), strict=True):
        assert torch.equal(ours.quantized.expand(), theirs.weight)
        assert ours.quantized.bits == (8 if ours is model.lm_head or scheme == "int8" else 4)
    ids = torch.tensor(prompt(5))
    assert torch.equal(model.embedding(ids), whole.embedding(ids))


def test_other_types_are_quantized_anew_in_the_same_groups(tmp_path):
    file = make(tmp_path, "F32")
    convert(file, floats := _new(tmp_path / "floats"))
    whole = load_model(floats, dtype=torch.float32, device="cpu")
    for scheme, most in (("int8", 0.006), ("int4", 0.1)):
        gguf_codes.convert_codes(file, few := _new(tmp_path / scheme), scheme)
        model = load_model(few, dtype=torch.float32, device="cpu")
        for ours, theirs in zip(linears(model), linears(whole), strict=True):
            error = (ours.quantized.expand() - theirs.weight).norm()
            assert error < most * theirs.weight.norm()


def test_a_quantized_gguf_is_resolved_to_codes_if_they_are_asked_for(tmp_path):
    file = make(tmp_path, "Q4_1")
    floats, few = resolve_model(file), resolve_model(file, quantization="int4")
    assert floats != few
    assert load_config(floats).quantization is None
    assert load_config(few).quantization == "int4"
    assert resolve_model(file, quantization="int4") == few


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory
