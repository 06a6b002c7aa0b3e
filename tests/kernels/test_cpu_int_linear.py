"""Integer products on a CPU: the same bits whatever the processor, and whoever stands beside."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from minillm_serve.kernels.cpu_int_linear import ROWS, TILE
from minillm_serve.kernels.cpu_quantize_rows import GROUP, MOST

from minillm_serve.models.gguf_codes import by_group_of_eight
from minillm_serve.models.quantized import QuantizedWeight, quantize
from minillm_serve.models.tiled import TiledWeight, quantize_rows

#: As a processor without AVX-512, and as one without AVX2 either.
LESSER = {
    "avx2": "-avx512f,-avx512vnni,-avxvnni,+avx2,+fma,+f16c",
    "plain": "-avx512f,-avx512vnni,-avxvnni,-avx2,-fma,-f16c",
}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(kind: str, outputs: int, columns: int) -> QuantizedWeight:
    weight = drawn(outputs, columns, seed=columns)
    return by_group_of_eight(weight) if kind == "q8_0" else quantize(weight, kind)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """What the integer product takes rows for, in float64."""
    codes, steps, _ = quantize_rows(x)
    groups = codes.reshape(len(x), -1, GROUP).astype(np.float64) * steps[..., None]
    return torch.from_numpy(groups.reshape(x.shape))


@pytest.mark.parametrize("kind", ["int8", "int4", "q8_0"])
@pytest.mark.parametrize("outputs", [TILE, 3 * TILE + 1])
@pytest.mark.parametrize("rows", [1, ROWS, 2 * ROWS + 3])
def test_products_are_those_of_the_rounded_factors(kind, outputs, rows):
    weight, x = make(kind, outputs, 160), drawn(rows, 160, seed=1)
    wanted = rounded(x) @ weight.expand().double().T
    found = TiledWeight.of(weight).linear(x)
    assert found.shape == (rows, outputs)
    assert (found - wanted).abs().max() < 2e-6 * wanted.abs().max()


@pytest.mark.parametrize("kind", ["int8", "int4", "q8_0"])
def test_a_row_gets_the_same_bits_whoever_stands_beside_it(kind):
    tiled, x = TiledWeight.of(make(kind, 70, 96)), drawn(3 * ROWS + 1, 96)
    alone = torch.cat([tiled.linear(row[None]) for row in x])
    for count in range(1, len(x) + 1):
        assert torch.equal(tiled.linear(x[:count]), alone[:count])


@pytest.mark.parametrize("columns", [48, 33, 4])
def test_columns_need_not_come_in_groups_with_8_bits(columns):
    weight, x = quantize(drawn(40, columns), "int8"), drawn(3, columns, seed=1)
    padded = torch.nn.functional.pad(x, (0, -columns % GROUP))
    wanted = rounded(padded)[:, :columns] @ weight.expand().double().T
    assert (TiledWeight.of(weight).linear(x) - wanted).abs().max() < 1e-5


def test_rows_are_rounded_to_the_nearest_code_by_groups():
    x = drawn(5, 4 * GROUP) * torch.tensor([1e-6, 1, 1e6, 1, 1])[:, None]
    codes, steps, sums = quantize_rows(x)
    groups = x.view(5, 4, GROUP)
    largest = groups.abs().amax(2)
    assert np.allclose(steps, largest / MOST, rtol=1e-6)
    error = (torch.from_numpy(codes).view(5, 4, GROUP) * largest[..., None] / MOST - groups).abs()
    assert (error <= 0.501 * largest[..., None] / MOST).all()
    assert np.array_equal(sums, codes.reshape(5, 4, GROUP).astype(np.int32).sum(2))


@pytest.mark.parametrize("value", [100.0, -100.0, 0.0, 1e-38])
def test_a_group_of_one_value_comes_back_b124(value):
    codes, steps, _ = quantize_rows(torch.full((1, GROUP), value))
    assert np.allclose(codes * steps, value, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_spoils_its_own_row_and_no_other(value):
    tiled, x = TiledWeight.of(make("int8", 40, 64)), drawn(3, 64)
    healthy = tiled.linear(x)
    x[1, 7] = value
    found = tiled.linear(x)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], healthy[[0, 2]])


def products() -> list[torch.Tensor]:
    kinds = [make(kind, 70, 96) for kind in ("int8", "int4")]
    return [TiledWeight.of(kind).linear(drawn(5, 96)) for kind in kinds]


@pytest.mark.parametrize(
    "features", ["avx2", pytest.param("plain", marks=pytest.mark.slow)], ids=str
)
def test_processors_that_know_less_give_the_same_bits(features, tmp_path):
    told = {"NUMBA_CPU_FEATURES": LESSER[features], "NUMBA_CACHE_DIR": str(tmp_path)}
    program = "import sys, torch; from tests.kernels.test_cpu_int_linear import products; "
    program += "torch.save(products(), sys.argv[1])"
    command = [sys.executable, "-c", program, str(tmp_path / "products.pt")]
    subprocess.run(command, env={**os.environ, **told}, check=True, timeout=300)
    for own, lesser in zip(products(), torch.load(tmp_path / "products.pt"), strict=True):
        assert torch.equal(own, lesser)
