"""Each fused loop against the torch lines beside it, in float64."""

import pytest
import torch

from minillm_serve.models import functional
from minillm_serve.models.functional import add_rms_norm, rms_norm, rotate, silu_mul

ROWS = [1, 3, 200]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def both(function, *tensors, **options):
    """The fused result, and torch's in float64."""
    with torch.inference_mode():
        fused = function(*(t.clone() for t in tensors), **options)
        plain = function(*(t.double() for t in tensors), **options)
    return fused, plain


def assert_close(fused, plain):
    assert fused.dtype is torch.float32
    torch.testing.assert_close(fused.double(), plain, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("rows", ROWS)
def test_rms_norm(rows):
    assert_close(*both(rms_norm, random(rows, 48), random(48, seed=1), eps=1e-5))


@pytest.mark.parametrize("rows", ROWS)
def test_rms_norm_of_every_head(rows):
    assert_close(*both(rms_norm, random(rows, 5, 16), random(5, 16, seed=1), eps=1e-5))


@pytest.mark.parametrize("rows", ROWS)
def test_add_rms_norm_gives_the_norm_and_the_stream(rows):
    tensors = random(rows, 48), random(rows, 48, seed=1), random(48, seed=2)
    fused, plain = both(add_rms_norm, *tensors, eps=1e-5)
    for mine, theirs in zip(fused, plain, strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize("rows", ROWS)
def test_rotate_reads_strided_heads(rows):
    def first_heads(fused, cos, sin):
        return rotate(fused[:, :4], cos, sin)

    angles = random(rows, 1, 16, seed=1)
    assert_close(*both(first_heads, random(rows, 6, 16), angles.cos(), angles.sin()))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("scale", [1, 30, 1e4])
def test_silu_mul_neither_overflows_nor_loses_small_gates(rows, scale, monkeypatch):
    monkeypatch.setattr(functional, "FEW_ROWS", 1000)
    gate_up = random(rows, 64)
    gate_up[:, :32] *= scale
    assert_close(*both(silu_mul, gate_up))


def test_many_rows_go_to_torch_and_agree():
    gate_up = random(functional.FEW_ROWS + 1, 64)
    assert_close(*both(silu_mul, gate_up))
