"""The gate kernel against float64."""

import pytest
import torch
from minillm_serve.kernels.silu_mul import silu_mul, silu_mul_reference

from tests.kernels.interpret import DEVICE, assert_rounded, poisoned

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def random(*shape, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    return (torch.randn(shape, generator=draw) * 4).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inner", [1, 24, 1000, 1024, 1536, 2049])
def test_it_equals_float64_for_any_width(inner, dtype):
    gate_up, out = random(3, 2 * inner, dtype=dtype), poisoned(3, inner, dtype=dtype)
    assert silu_mul(gate_up, out=out) is out
    assert_rounded(out, silu_mul_reference(gate_up.double()))


def test_rows_may_be_strided_amid_nan_b133():
    room = poisoned(4, 2 * 40 + 16)
    gate_up = room[::2, 8:-8]
    gate_up.copy_(random(2, 80))
    assert_rounded(silu_mul(gate_up), silu_mul_reference(gate_up.double()))


def test_far_from_zero_the_gate_is_shut_or_open_and_never_nan():
    gates = torch.tensor([-1e30, -1e4, -90.0, -88.0, 0.0, 88.0, 1e4, 1e30], device=DEVICE)
    out = silu_mul(torch.cat((gates, torch.ones_like(gates)))[None])[0]
    assert out.isfinite().all()
    assert (out[:4].abs() < 1e-36).all()
    assert torch.equal(out[4:], gates[4:])


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(ValueError, match="gate_up has 7 columns, must have an even number"):
        silu_mul(random(2, 7))
    with pytest.raises(ValueError, match=r"out has shape \[2, 5\], must have \[2, 4\]"):
        silu_mul(random(2, 8), out=poisoned(2, 5))
    with pytest.raises(ValueError, match=r"gate_up is torch\.int32"):
        silu_mul(torch.ones(2, 8, dtype=torch.int32, device=DEVICE))
    assert silu_mul(random(0, 8)).shape == (0, 4)
