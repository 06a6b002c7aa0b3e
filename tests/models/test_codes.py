"""Weights that were quantized once are kept as codes, without a bit of difference."""

import pytest
import torch
from minillm_serve.kernels.cpu_coded_linear import TILE

from minillm_serve.models.codes import CHUNK, CodedWeight, find_codes
from minillm_serve.models.layers import FEW_ROWS, Linear, Placement
from minillm_serve.models.loader import load_model
from minillm_serve.models.resolve import resolve_model

GROUPS = 5


def quantized(bits: int, rows: int = 40, groups: int = GROUPS, seed: int = 0) -> torch.Tensor:
    """A random weight as GGUF's Q4_1 or Q8_0 would give it back, float32 [rows, 32 * groups]."""
    weight = torch.randn(rows, groups, 32, generator=torch.Generator().manual_seed(seed))
    if bits == 4:
        low = weight.amin(2, keepdim=True).half().float()
        step = ((weight.amax(2, keepdim=True) - low) / 15).half().float()
        codes = ((weight - low) / step).round().clamp(0, 15)
        codes[..., 0], codes[..., 1] = 0, 15
        return (codes * step + low).flatten(1)
    step = (weight.abs().amax(2, keepdim=True) / 127).half().float()
    codes = (weight / step).round().clamp(-127, 127)
    codes[..., 3] = -127
    return (codes * step).flatten(1)


def find(weight: torch.Tensor) -> CodedWeight:
    found = find_codes(weight)
    assert found is not None
    return found


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_give_back_every_bit_of_a_weight_that_was_quantized(bits):
    weight = quantized(bits, rows=CHUNK + 3)
    coded = find(weight)
    assert torch.equal(coded.expand(), weight)
    assert coded.codes.shape == (CHUNK + 3, GROUPS, 4 * bits)
    assert coded.nbytes == weight.numel() * (bits + 2) // 8


def test_a_weight_that_was_never_quantized_is_left_alone():
    assert find_codes(torch.randn(40, 64)) is None


@pytest.mark.parametrize("bits", [4, 8])
def test_one_changed_value_anywhere_and_nothing_is_coded(bits):
    weight = quantized(bits)
    row, column = len(weight) - 1, 77
    weight[row, column] = torch.nextafter(weight[row, column], torch.tensor(9.0))
    assert find_codes(weight) is None


@pytest.mark.parametrize("value", [0.0, -1.5, float("nan"), float("inf")])
def test_a_constant_group_is_coded_if_it_is_a_number(value):
    weight = quantized(4)
    weight[2, 32:64] = value
    coded = find_codes(weight)
    if value in (0.0, -1.5):
        assert coded is not None
        assert torch.equal(coded.expand(), weight)
    else:
        assert coded is None


def test_other_dtypes_and_rows_that_are_no_whole_groups_are_left_alone():
    assert find_codes(quantized(4).double()) is None
    assert find_codes(quantized(4)[:, :-1]) is None


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 2, 3, TILE, TILE + 1, 2 * TILE + 3])
def test_products_agree_with_float64(bits, rows):
    weight = quantized(bits, rows=33)
    x = torch.randn(rows, weight.shape[1])
    wanted = x.double() @ weight.double().T
    assert (find(weight).linear(x) - wanted).abs().max() < 2e-6 * wanted.abs().max() + 1e-6


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_gets_the_same_bits_whoever_stands_beside_it(bits):
    coded, x = find(quantized(bits)), torch.randn(3 * TILE, 32 * GROUPS)
    alone = torch.cat([coded.linear(row[None]) for row in x])
    for count in range(1, len(x) + 1):
        assert torch.equal(coded.linear(x[:count]), alone[:count])


def test_a_strided_input_is_read_right():
    coded, x = find(quantized(4)), torch.randn(4, 2 * 32 * GROUPS)
    part = x[:, 32 * GROUPS :]
    assert torch.equal(coded.linear(part), coded.linear(part.clone()))


@pytest.mark.parametrize("rows", [1, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("relayout", [False, True])
def test_a_packed_layer_computes_what_it_did_before(rows, bias, relayout):
    weight = quantized(4)
    layer = Linear(
        weight.shape[1], len(weight), bias, Placement(torch.float32, torch.device("cpu"))
    )
    layer.weight.data.copy_(weight)
    if layer.bias is not None:
        layer.bias.data.normal_()
    x = torch.randn(rows, weight.shape[1])
    with torch.inference_mode():
        before = layer(x)
        layer.pack(relayout=relayout)
        assert layer.coded is not None
        torch.testing.assert_close(layer(x), before, rtol=1e-5, atol=1e-5)


@pytest.mark.model
def test_every_product_of_the_embedded_model_has_codes():
    model = load_model(resolve_model("smollm2-135m"), dtype=torch.float32, device="cpu")
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    assert len(linears) == 30 * 4 + 1
    for linear in linears:
        assert linear.coded is not None
        assert torch.equal(linear.coded.expand(), linear.weight)
    whole = sum(linear.weight.nbytes for linear in linears)
    assert 0.1 * whole < model.bytes_read < 0.22 * whole
    for linear in linears:
        linear.coded = None
    assert model.bytes_read == whole
