"""Other weights in place of a model's: put in, taken out, and by algorithms that beat RTN."""

import pytest
import torch

from minillm_serve import LLM
from minillm_serve.quality.better import activation_aware, compensated
from minillm_serve.quality.losses import compare
from minillm_serve.quality.reading import Reader
from minillm_serve.quality.studies import Studies, stretches
from minillm_serve.quality.weights import Grid, Inputs, changed, linears, watching
from tests.llm.tiny import save_tiny
from tests.quality.test_reading import ROOM, TEXT

GRID = Grid(4, 16)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return LLM(save_tiny(folder, hidden_size=64, intermediate_size=128), **ROOM)


@pytest.fixture(scope="module")
def met():
    """Inputs of which some channels are large, and neighbours go together."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 64, generator=draw) * torch.logspace(1, -1, 64)
    x[:, 1:] += 0.7 * x[:, :-1]
    weight = torch.randn(24, 64, generator=draw)
    return weight, Inputs(x.T @ x / len(x), x.abs().mean(0))


def test_a_grid_has_so_many_values_a_group_and_keeps_its_own() -> None:
    weight = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    rounded = GRID.round(weight)
    assert all(len(group.unique()) <= 16 for group in rounded.view(-1, 16))
    torch.testing.assert_close(GRID.round(rounded), rounded)
    half = (weight.view(-1, 16).amax(1) - weight.view(-1, 16).amin(1)) / 30
    assert ((rounded - weight).view(-1, 16).abs() <= half[:, None] * 1.001).all()
    assert GRID.round(torch.ones(2, 16)).eq(1).all()


@pytest.mark.parametrize(("algorithm", "share"), [(activation_aware, 0.95), (compensated, 0.8)])
def test_what_looks_at_inputs_has_the_better_product_on_the_same_grid(
    algorithm, share, met
) -> None:
    weight, inputs = met
    better, nearest = algorithm(weight, inputs, GRID), GRID.round(weight)
    assert inputs.error(better - weight) < share * inputs.error(nearest - weight)
    assert (better - weight).square().sum() > (nearest - weight).square().sum()


def test_compensation_leaves_weights_on_a_grid(met) -> None:
    better = compensated(*met, GRID)
    assert all(len(group.unique()) <= 16 for group in better.view(-1, 16))


def test_inputs_that_do_not_go_together_leave_nothing_to_compensate() -> None:
    weight = torch.randn(8, 32, generator=torch.Generator().manual_seed(2))
    alone = Inputs(torch.eye(32), torch.ones(32))
    torch.testing.assert_close(compensated(weight, alone, GRID), GRID.round(weight))
    torch.testing.assert_close(activation_aware(weight, alone, GRID), GRID.round(weight))


def test_watching_sees_what_comes_into_each_matrix(llm) -> None:
    reader = Reader.of(llm)
    with watching(reader.model, layers=[1]) as seen:
        reader.read(TEXT)
    assert set(seen) == set(linears(reader.model, layers=[1]))
    for name, inputs in seen.items():
        columns = linears(reader.model)[name].weight.shape[1]
        assert inputs.products.shape == (columns, columns)
        assert (inputs.products.diagonal() >= inputs.size.square() * 0.999).all()


def test_other_weights_are_gone_when_the_block_ends_whatever_happens(llm) -> None:
    reader = Reader.of(llm)
    before = reader.read(TEXT)

    def break_off() -> None:
        with changed(reader.model, lambda _, w: w * 0):
            assert not torch.equal(reader.read(TEXT).hidden, before.hidden)
            raise KeyError

    with pytest.raises(KeyError):
        break_off()
    assert torch.equal(reader.read(TEXT).hidden, before.hidden)


def test_quantized_weights_are_not_rounded_again(llm) -> None:
    model = LLM(llm.model_path, quantization="int8", **ROOM).engine.executor.model
    with pytest.raises(ValueError, match="quantization=None"), changed(model, lambda _, w: w):
        pass


def test_the_twin_computes_the_same_by_other_weights(llm) -> None:
    """The stretches are such that what is before each matrix can shrink by as much."""
    model, config = Reader.of(llm).model, llm.model_config
    reference = Reader.of(llm).read(TEXT)
    found = stretches(model)
    kept = {name: p.data.clone() for name, p in model.named_parameters()}
    matrices = linears(model)
    for number, layer in enumerate(model.layers):
        inputs = {name: found[f"{number}.{name}"] for name in (
            "attention.qkv_proj", "attention.o_proj", "mlp.gate_up_proj", "mlp.down_proj"
        )}  # fmt: skip
        for name, stretch in inputs.items():
            matrix = matrices[f"{number}.{name}"]
            matrix.weight.data = matrix.weight.data * stretch
            matrix.coded = None
        layer.input_norm.weight.data /= inputs["attention.qkv_proj"]
        layer.post_attention_norm.weight.data /= inputs["mlp.gate_up_proj"]
        shared = config.num_heads // config.num_kv_heads
        heads = inputs["attention.o_proj"].view(config.num_kv_heads, shared, -1)[:, 0].flatten()
        values = layer.attention.qkv_proj.weight.data[-len(heads) :]
        values /= heads[:, None]
        up = layer.mlp.gate_up_proj.weight.data[config.intermediate_size :]
        up /= inputs["mlp.down_proj"][:, None]
    twin = Reader.of(llm).read(TEXT)
    for name, parameter in model.named_parameters():
        parameter.data = kept[name]
    assert compare(reference, twin).kl < 1e-6


def test_studies_find_every_layer_head_and_pair_of_bits(llm) -> None:
    text = [*TEXT, *TEXT]
    studies = Studies(llm, text, 40)
    layers = list(studies.layers())
    assert [row["layer"] for row in layers] == [0, 1, 2]
    assert all(row["kv"] > 0 and row["weights"] > 0 for row in layers)
    assert len({row["kv"] for row in studies.heads()}) == 3 * 2
    ways = {row["way"]: row["kl"] for row in studies.kv_ways()}
    assert ways["int8, a scale a token and head"] < ways["4 bits, keys and values"]
    with pytest.raises(ValueError, match="studies need 142"):
        Studies(llm, text, 71)
