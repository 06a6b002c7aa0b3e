"""Products with weights in 8 and 4 bits in Triton, against float64."""

import pytest
import torch
from minillm_serve.kernels.quantized_linear import (
    FEW,
    quantized_linear,
    quantized_linear_reference,
)

from minillm_serve.models.gguf_codes import by_group_of_eight
from minillm_serve.models.quantized import QuantizedWeight, quantize
from tests.kernels.interpret import DEVICE, poisoned

KINDS = ["int8", "int4", "q8_0"]


def make(kind: str, outputs: int, columns: int) -> QuantizedWeight:
    draw = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, columns, generator=draw)
    found = by_group_of_eight(weight) if kind == "q8_0" else quantize(weight, kind)
    return found.to(torch.device(DEVICE))


def rows(count: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(count)
    return torch.randn(count, columns, generator=draw).to(DEVICE, dtype)


def check(x: torch.Tensor, weight: QuantizedWeight, **options: int) -> None:
    got = quantized_linear(x, *weight, **options)
    want = quantized_linear_reference(x.double(), *weight)
    # In 16 bits weights are rounded too, and the errors of all columns add up like noise.
    unit = 1e-6 if x.dtype == torch.float32 else 2 * torch.finfo(x.dtype).eps
    assert got.dtype == x.dtype
    assert (got.double() - want).abs().max() < unit * want.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_float64_for_few_rows_and_many(kind, dtype):
    weight = make(kind, 70, 160)  # no whole tiles in any direction
    for count in (1, FEW.rows, FEW.rows + 1):
        check(rows(count, 160, dtype), weight)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("splits", [2, 3, 5])
def test_pieces_of_the_columns_add_up(kind, splits):
    check(rows(3, 320, torch.float32), make(kind, 64, 320), splits=splits)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_those_beside_it(kind):
    weight, x = make(kind, 64, 96), rows(9, 96, torch.float32)
    whole = quantized_linear(x, *weight)
    for count in (1, 4):
        assert torch.equal(quantized_linear(x[:count], *weight), whole[:count])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_be_strided_amid_nan_b133(kind):
    room = poisoned(6, 64 + 32)
    x = room[::2, 16:-16]
    x.copy_(rows(3, 64, torch.float32))
    weight = make(kind, 33, 64)
    assert torch.equal(quantized_linear(x, *weight), quantized_linear(x.contiguous(), *weight))


def test_8_bits_with_a_step_a_row_take_any_number_of_columns():
    check(rows(2, 48, torch.float32), make("int8", 20, 48))


def test_nothing_in_gives_nothing_out():
    assert quantized_linear(rows(0, 64, torch.float32), *make("int8", 20, 64)).shape == (0, 20)


def test_what_does_not_fit_is_refused_by_name():
    x, weight = rows(2, 64, torch.float32), make("int4", 20, 64)
    with pytest.raises(ValueError, match="codes has shape"):
        quantized_linear(x[:, :32], *weight)
    with pytest.raises(ValueError, match="starts has shape"):
        quantized_linear(x, weight.codes, weight.steps, weight.starts[:, :1])
    with pytest.raises(ValueError, match=r"x is torch\.float64"):
        quantized_linear(x.double(), *weight)
    with pytest.raises(ValueError, match="multiple of 32"):
        quantized_linear(x[:, :48], weight.codes[:, :24], weight.steps, weight.starts)
