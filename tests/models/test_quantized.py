"""Models in 8 and 4 bits: what is rounded, what it costs, what is kept, and how it is saved."""

import json
import platform
import subprocess
import sys

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.models.cli import main
from minillm_serve.models.errors import ModelError
from minillm_serve.models.fused import FusedLayers
from minillm_serve.models.layers import Linear
from minillm_serve.models.loader import load_config, load_model
from minillm_serve.models.quantize import choose_quantization
from minillm_serve.models.quantized import join, pack_columns, quantize
from minillm_serve.models.quantized_file import FILE, save_quantized
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.tiled import TiledWeight
from minillm_serve.models.transformer import Transformer
from minillm_serve.models.weights import num_weights, weight_bytes
from tests.llm.tiny import save_tiny
from tests.models.tiny import our_logits, prompt, random_model, save

CPU = torch.device("cpu")
#: Widths in whole groups of 32, so that all layers can have 4 bits.
WIDE = {"hidden_size": 64, "intermediate_size": 96}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def load(directory, scheme: str | None = None) -> Transformer:
    return load_model(directory, dtype=torch.float32, device="cpu", quantization=scheme)


def in_floats(model: Transformer) -> Transformer:
    """A model whose weights are what a quantized one's stand for."""
    twin = Transformer(model.config, torch.float32, CPU)
    for theirs, ours in zip(model.modules(), twin.modules(), strict=True):
        if getattr(theirs, "quantized", None) is not None:
            ours.weight.data.copy_(theirs.quantized.expand())
    for (_, theirs), (_, ours) in zip(
        model.named_parameters(), twin.named_parameters(), strict=True
    ):
        if not theirs.is_meta:
            ours.data.copy_(theirs)
    return twin.eval()


def test_8_bits_round_to_the_nearest_of_127_steps_a_channel_either_way():
    weight = drawn(7, 50)
    found = quantize(weight, "int8")
    steps = weight.abs().amax(1, keepdim=True) / 127
    assert torch.equal(found.steps, steps)
    assert ((found.expand() - weight).abs() <= 0.5001 * steps).all()


def test_4_bits_round_to_the_nearest_of_16_values_a_group():
    weight = drawn(7, 96)
    found = quantize(weight, "int4")
    assert found.steps.dtype == torch.float16
    assert found.codes.shape == (7, 48)
    error = (found.expand() - weight).view(7, 3, 32).abs().amax(2)
    # Half a step, and what float16 rounds off the ends of the range.
    assert (error <= 0.51 * found.steps.float() + 2e-3).all()
    assert found.nbytes == weight.numel() * 5 / 8


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("value", [100.0, -100.0, 0.0])
def test_a_weight_of_one_value_comes_back_b124(scheme, value):
    weight = torch.full((3, 64), value)
    assert torch.allclose(quantize(weight, scheme).expand(), weight, rtol=1e-3)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(scheme, value):
    weight = drawn(3, 64)
    weight[1, 40] = value
    with pytest.raises(ValueError, match="not finite"):
        quantize(weight, scheme)


def test_a_weight_of_four_bits_is_found_again_exactly():
    codes = torch.randint(0, 16, (9, 64), dtype=torch.uint8)
    codes[:, ::32], codes[:, 1::32] = 0, 15
    steps, starts = drawn(9, 2).abs().half(), drawn(9, 2, seed=1).half()
    weight = (codes.view(9, 2, 32) * steps.float()[..., None] + starts.float()[..., None]).flatten(
        1
    )
    found = quantize(weight, "int4")
    assert torch.equal(found.codes, pack_columns(codes))
    assert torch.equal(found.expand(), weight)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_tiles_lose_nothing_and_rows_can_be_picked(scheme):
    weight = quantize(drawn(70, 96), scheme)
    tiled = TiledWeight.of(weight)
    picked = torch.tensor([69, 0, 33])
    assert torch.equal(tiled.expand(), weight.expand())
    assert torch.equal(tiled.rows(picked).expand(), weight.expand()[picked])
    parts = [tiled.rows(torch.arange(20)), tiled.rows(torch.arange(20, 70))]
    assert torch.equal(join(parts).expand(), weight.expand())


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen2", {}),
        ("qwen3", {}),
        ("llama", {"hidden_size": 48, "intermediate_size": 80}),
    ],
)
def test_logits_are_those_of_the_rounded_weights(model_type, options, scheme, tmp_path):
    save(random_model(model_type, **{**WIDE, **options}), tmp_path)
    model = load(tmp_path, scheme)
    wanted, found = our_logits(in_floats(model), prompt(20)), our_logits(model, prompt(20))
    # What is left is that rows are rounded, too, on the way to each product.
    assert (found - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
def test_fused_layers_compute_what_layers_do_one_by_one(model_type, scheme, tmp_path):
    biases = {"attention_bias": True, "mlp_bias": True} if model_type == "llama" else {}
    save(random_model(model_type, **WIDE, **biases), tmp_path)
    model = load(tmp_path, scheme)
    assert isinstance(model.run_layers, FusedLayers)
    for length in (1, 8, 20):
        fused = our_logits(model, prompt(length))
        plain = in_pieces(model, prompt(length))
        assert torch.allclose(fused, plain, rtol=1e-5, atol=1e-5)


def in_pieces(model: Transformer, ids: list[int]) -> torch.Tensor:
    fused, model.run_layers = model.run_layers, model._run_layers
    try:
        return our_logits(model, ids)
    finally:
        model.run_layers = fused


def test_a_tied_weight_is_shared_by_embedding_and_head_and_counted_once_b130(tmp_path):
    save(random_model("llama", tie_word_embeddings=True, **WIDE), tmp_path)
    whole, model = load(tmp_path), load(tmp_path, "int4")
    assert model.lm_head.quantized is model.embedding.quantized
    assert model.embedding.quantized.bits == 8  # the rule: under 4 bits, too
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    norms = sum(p.nbytes for p in model.parameters() if not p.is_meta)
    assert model.nbytes == sum(linear.quantized.nbytes for linear in linears) + norms
    ids = torch.tensor([3, 3, 96])
    step = whole.embedding.weight[ids].abs().amax(1, keepdim=True) / 127
    assert ((model.embedding(ids) - whole.embedding(ids)).abs() <= 0.501 * step).all()
    hidden = drawn(4, 64)
    close = whole.logits(hidden)
    assert (model.logits(hidden) - close).norm() < 0.02 * close.norm()


def test_an_untied_head_has_a_weight_of_its_own(tmp_path):
    save(random_model("llama", tie_word_embeddings=False, **WIDE), tmp_path)
    model = load(tmp_path, "int8")
    assert model.lm_head.quantized is not model.embedding.quantized
    assert not torch.equal(model.lm_head.quantized.codes, model.embedding.quantized.codes)


def test_no_layer_keeps_its_floats_b131(tmp_path):
    save(random_model("llama", **WIDE), tmp_path)
    whole, eight, four = load(tmp_path), load(tmp_path, "int8"), load(tmp_path, "int4")
    assert eight.nbytes < 0.35 * whole.nbytes
    assert four.nbytes < 0.75 * eight.nbytes
    for model in (eight, four):
        for module in model.modules():
            if isinstance(module, Linear):
                assert module.weight.is_meta
        assert model.device == CPU
        assert model.dtype == torch.float32


MEMORY = """
import ctypes, sys, torch
from minillm_serve.models.loader import load_model
def load(folder):
    return load_model(folder, dtype=torch.float32, device="cpu", quantization=sys.argv[3] or None)
def anonymous():
    ctypes.CDLL(None).malloc_trim(0)  # what was freed, and is kept for whoever asks next
    lines = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    return int(lines["RssAnon"].split()[0]) * 1024
# Whatever is compiled or imported on first use takes memory, too, and is not the model's.
load(sys.argv[1])
before = anonymous()
model = load(sys.argv[2])
print(anonymous() - before, model.nbytes)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks Linux and its C library")
def test_the_process_is_smaller_by_what_is_saved_b131(tmp_path):
    """Measured by the system, in processes of their own: 20 million weights."""
    shape = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6}
    save(random_model("llama"), tmp_path / "small")
    save(random_model("llama", **shape, vocab_size=4096), tmp_path / "large")
    taken = {}
    for scheme in ("", "int8"):
        folders = [str(tmp_path / "small"), str(tmp_path / "large")]
        command = [sys.executable, "-c", MEMORY, *folders, scheme]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        taken[scheme], kept = map(int, done.stdout.split())
        assert 0.95 * kept < taken[scheme] < 1.05 * kept
    assert taken["int8"] < 0.5 * taken[""]


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("tied", [False, True])
def test_what_is_saved_is_loaded_again_to_the_last_bit(scheme, tied, tmp_path):
    save(random_model("qwen3", tie_word_embeddings=tied, **WIDE), tmp_path / "floats")
    model = load(tmp_path / "floats", scheme)
    save_quantized(model, tmp_path / "floats", tmp_path / "few", scheme)
    assert load_config(tmp_path / "few").quantization == scheme
    again = load(tmp_path / "few")
    assert torch.equal(our_logits(again, prompt(9)), our_logits(model, prompt(9)))
    assert again.nbytes == model.nbytes
    size = (tmp_path / "few" / FILE).stat().st_size
    assert size < model.nbytes + 20_000


def test_the_shell_saves_what_an_engine_loads(tmp_path, capsys):
    directory = save_tiny(tmp_path / "floats", **WIDE)
    assert main(["quantize", str(directory), str(tmp_path / "few"), "--scheme", "int4"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "few")
    llm = LLM(tmp_path / "few", num_blocks=20)
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    (output,) = llm.generate(["hello"], params, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 5
    assert main(["quantize", str(directory), str(tmp_path / "few")]) == 1
    with pytest.raises(ValueError, match="saved in int4"):
        LLM(tmp_path / "few", quantization="int8")
    with pytest.raises(ValueError, match="float32"):
        LLM(tmp_path / "few", dtype="float64")


def test_the_shell_gives_no_checkpoint_another_scheme_s_name(tmp_path, capsys):
    directory = save_tiny(tmp_path / "floats", **WIDE)
    few, again = str(tmp_path / "few"), tmp_path / "again"
    assert main(["quantize", str(directory), few, "--scheme", "int8"]) == 0
    assert main(["quantize", few, str(again), "--scheme", "int4"]) == 1
    assert "was saved in int8 and cannot be had in int4: start from" in capsys.readouterr().err
    assert not again.exists()
    assert main(["quantize", few, str(again), "--scheme", "int8"]) == 0
    assert load_config(again).quantization == "int8"


@pytest.mark.parametrize("scheme", [None, "int8", "int4"])
@pytest.mark.parametrize("tied", [False, True])
def test_what_weights_will_take_is_known_before_they_are_read_b131(scheme, tied, tmp_path):
    """To within their steps in 8 bits, and norms."""
    shape = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 999}
    save(random_model("llama", tie_word_embeddings=tied, **shape), tmp_path)
    found = weight_bytes(
        num_weights(tmp_path), load_config(tmp_path), dtype=torch.float32, quantization=scheme
    )
    kept = load(tmp_path, scheme).nbytes
    assert 0.97 * kept < found <= kept


def test_a_checkpoint_is_not_written_over_another(tmp_path):
    save(random_model("llama", **WIDE), tmp_path)
    with pytest.raises(ModelError, match="is there already"):
        save_quantized(load(tmp_path, "int8"), tmp_path, tmp_path, "int8")
    with pytest.raises(ModelError, match="not quantized"):
        save_quantized(load(tmp_path), tmp_path, tmp_path / "new", "int8")


def test_foreign_quantization_is_refused_by_name(tmp_path):
    save(random_model("llama", **WIDE), tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for said, match in (
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "minillm-serve", "scheme": "int3", "format": 1}, "int3"),
        ({"quant_method": "minillm-serve", "scheme": "int8", "format": 99}, "99"),
    ):
        file.write_text(json.dumps({**config, "quantization_config": said}))
        with pytest.raises(ModelError, match=match):
            load(tmp_path)


def test_a_damaged_quantized_file_is_refused(tmp_path):
    save(random_model("llama", **WIDE), tmp_path / "floats")
    save_quantized(load(tmp_path / "floats", "int4"), tmp_path / "floats", tmp_path / "few", "int4")
    file = tmp_path / "few" / FILE
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="damaged"):
        load(tmp_path / "few")


@pytest.mark.parametrize(
    ("asked", "saved", "dtype", "device", "match"),
    [
        ("int3", None, torch.float32, "cpu", "int8"),
        ("int8", "int4", torch.float32, "cpu", "saved in int4"),
        ("int8", None, torch.float64, "cpu", "float32"),
        ("int8", None, torch.bfloat16, "cpu", "float32"),
        (None, "int8", torch.float64, "cpu", "float32"),
        ("int4", None, torch.float32, "cuda", "float16"),
    ],
)
def test_what_cannot_go_together_is_refused_by_name_b125(asked, saved, dtype, device, match):
    with pytest.raises(ValueError, match=match):
        choose_quantization(asked, saved, dtype, torch.device(device), compile=False)


def test_compiled_layers_and_quantized_weights_are_refused_together():
    with pytest.raises(ValueError, match="compile=True"):
        choose_quantization("int8", None, torch.float32, CPU, compile=True)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_on_a_gpu_a_triton_kernel_computes_the_same(scheme, monkeypatch):
    weight, x = quantize(drawn(40, 64), scheme), drawn(3, 64, seed=1)
    plain = weight.linear(x)
    monkeypatch.setattr("minillm_serve.models.quantized.on_gpu", lambda x: True)
    assert torch.allclose(weight.linear(x), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.model
@pytest.mark.parametrize(("scheme", "bytes_"), [("int8", 136e6), ("int4", 96e6)])
def test_the_embedded_model_loses_less_than_2_percent_of_perplexity(scheme, bytes_):
    from minillm_serve.models.loader import load_tokenizer

    path = resolve_model("smollm2-135m")
    ids = load_tokenizer(path).encode(json.__doc__ or "")[:300]
    whole, model = load(path), load(path, scheme)
    nats = [
        torch.nn.functional.cross_entropy(our_logits(m, ids)[:-1], torch.tensor(ids[1:])).item()
        for m in (whole, model)
    ]
    assert nats[1] - nats[0] < 0.02
    assert model.nbytes < bytes_
