"""The norm kernels against float64."""

import pytest
import torch
from minillm_serve.kernels.rms_norm import (
    add_rms_norm,
    choose_config,
    rms_norm,
    rms_norm_reference,
)

from tests.kernels.interpret import DEVICE, assert_rounded, poisoned

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EPS = 1e-5


def random(*shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw).to(DEVICE, dtype)


def amid_poison(x):
    """The same values as a strided view, NaN on all sides."""
    room = poisoned(x.shape[0] + 2, *x.shape[1:-1], x.shape[-1] + 16, dtype=x.dtype)
    view = room[1:-1, ..., 8:-8]
    view.copy_(x)
    return view


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 24, 64, 80, 576, 1000, 2048])
def test_the_norm_equals_float64_for_any_width_b133(width, dtype):
    x, weight = random(5, width, dtype=dtype) * 3, random(width, dtype=dtype, seed=1)
    out = poisoned(5, width, dtype=dtype)
    assert rms_norm(amid_poison(x), weight, EPS, out=out) is out
    assert_rounded(out, rms_norm_reference(x.double(), weight.double(), EPS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("groups", "width"), [(1, 16), (9, 64), (7, 80), (40, 128)])
def test_each_head_has_its_own_weight_and_heads_may_be_part_of_a_projection(groups, width, dtype):
    projected = random(3, groups + 4, width, dtype=dtype)
    x, weight = projected[:, 2:-2], random(groups, width, dtype=dtype, seed=1)
    out = rms_norm(x, weight, EPS)
    assert out.is_contiguous()
    assert_rounded(out, rms_norm_reference(x.double(), weight.double(), EPS))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 80, 576, 1000])
def test_adding_and_norming_equals_float64(width, dtype):
    x, stream = random(5, width, dtype=dtype), random(5, width, dtype=dtype, seed=1) * 4
    weight = random(width, dtype=dtype, seed=2)
    total = x + stream  # torch rounds the sum to the dtype too
    residual, out = amid_poison(stream), poisoned(5, width, dtype=dtype)
    normed, added = add_rms_norm(amid_poison(x), residual, weight, EPS, out=out)
    assert normed is out
    assert added is residual
    assert torch.equal(residual, total)
    assert_rounded(out, rms_norm_reference(total.double(), weight.double(), EPS))


def test_the_result_may_take_the_place_of_the_input():
    x, weight = random(4, 80), random(80, seed=1)
    want = rms_norm_reference(x.double(), weight.double(), EPS)
    assert_rounded(rms_norm(x, weight, EPS, out=x), want)
    x, stream = random(4, 80), random(4, 80, seed=3)
    want = rms_norm_reference(x.double() + stream.double(), weight.double(), EPS)
    assert_rounded(add_rms_norm(x, stream, weight, EPS, out=x)[0], want)


def test_a_row_of_nan_stays_alone():
    x, weight = random(20, 24), random(24, seed=1)
    x[7] = torch.nan
    out = rms_norm(x, weight, EPS)
    assert out.isnan().any(dim=1).nonzero().flatten().tolist() == [7]


def test_no_rows_are_no_work():
    assert rms_norm(random(0, 8), random(8), EPS).shape == (0, 8)
    assert add_rms_norm(random(0, 8), random(0, 8), random(8), EPS)[0].shape == (0, 8)


@pytest.mark.parametrize("width", [1, 63, 128, 576, 4096, 5120, 16384])
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_program_has_a_warp_or_more_and_no_more_threads_than_a_gpu_allows(width, target):
    config = choose_config(width, target)
    threads = config.num_warps * (64 if target == "gfx942" else 32)
    assert 64 <= threads <= 1024
    assert config.padded >= width
    assert config.rows * config.padded // threads == 16 or config.padded > 16 * 1024


def test_what_does_not_fit_is_refused_by_name():
    x, weight = random(4, 80), random(80)
    with pytest.raises(ValueError, match=r"weight has shape \[79\], must have \[80\]"):
        rms_norm(x, weight[:79], EPS)
    with pytest.raises(ValueError, match=r"x is torch\.float64, must be torch\.float32 or"):
        rms_norm(x.double(), weight, EPS)
    with pytest.raises(ValueError, match=r"x has strides \[1, 4\].*contiguous"):
        rms_norm(random(80, 4).t(), weight, EPS)
    with pytest.raises(ValueError, match=r"residual has shape \[3, 80\], must have \[4, 80\]"):
        add_rms_norm(x, random(3, 80), weight, EPS)
    with pytest.raises(ValueError, match="weight is on meta"):
        rms_norm(x, weight.to("meta"), EPS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [4096, 5120, 8192, 16384])
def test_wide_rows_equal_float64(width, dtype):
    x, weight = random(33, width, dtype=dtype), random(width, dtype=dtype, seed=1)
    assert_rounded(rms_norm(x, weight, EPS), rms_norm_reference(x.double(), weight.double(), EPS))
