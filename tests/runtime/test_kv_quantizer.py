"""Keys and values in 8 bits: what a round trip keeps, by torch and by every backend's kernel."""

import math

import pytest
import torch

from minillm_serve.core import PartError
from minillm_serve.parts import Part
from minillm_serve.parts.kv_quantizer import fit_kv_quantizer
from minillm_serve.runtime.attention.registry import BACKENDS
from minillm_serve.runtime.kv_cache import KVScales
from minillm_serve.runtime.kv_conformance import allowed_error, find_quantizer_fault, make_rows
from minillm_serve.runtime.kv_quantizer import (
    QUANTIZERS,
    Fp8Quantizer,
    Int8Quantizer,
    bytes_per_number,
    dequantize,
)
from tests.llm.parts_right import MyKVQuantizer

P, KV_HEADS, DIM = 4, 2, 64
KINDS = {kind: x for kind, x in make_rows()}
ids = ["int8", "fp8"]
quantizers = pytest.mark.parametrize("ours", QUANTIZERS.values(), ids=ids)


@quantizers
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_trip_keeps_numbers_of_any_range_b124(ours, kind):
    x = KINDS[kind]
    codes, scales = ours.quantize(x)
    assert (codes.dtype, scales.dtype) == (ours.dtype, torch.float32)
    assert scales.shape == x.shape[:2]
    got = ours.dequantize(codes, scales)
    assert ((got - x).abs() <= allowed_error(x, ours.dtype)).all()


@quantizers
def test_ours_pass_the_comparison_at_the_door(ours):
    assert find_quantizer_fault(ours) is None


def test_int8_takes_all_codes_but_one_and_rounds_ties_to_even():
    x = torch.tensor([[[127.0, -127.0, 0.5, 1.5, -0.5, -2.5]]])
    codes, scales = Int8Quantizer().quantize(x)
    assert codes.tolist() == [[[127, -127, 0, 2, 0, -2]]]
    assert scales.tolist() == [[1.0]]


def test_every_fp8_code_comes_back_as_itself():
    codes = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn)
    numbers = codes.float()
    numbers = torch.cat([numbers[numbers.isfinite()], torch.tensor([448.0])])[None, None]
    again, scales = Fp8Quantizer().quantize(numbers)
    assert scales.tolist() == [[1.0]]
    assert torch.equal(again.float(), numbers)


@quantizers
def test_what_is_not_finite_spoils_its_own_row_and_no_other(ours):
    x = torch.randn(4, 2, DIM)
    alone = ours.dequantize(*ours.quantize(x))
    x[0, 0, 3], x[1, 1, 5], x[2, 0, 0] = math.nan, math.inf, -math.inf
    got = ours.dequantize(*ours.quantize(x))
    assert got[[0, 1, 2], [0, 1, 0]].isnan().all()
    whole = x.isfinite().all(-1)
    assert torch.equal(got[whole], alone[whole])


def fill(backend, ours, x):
    """Lets a backend store x [T, H_kv, D] as keys and -x as values: codes and scales of both."""
    tokens, kv_heads, dim = x.shape
    blocks = -(-tokens // P)
    k_cache, v_cache = (torch.zeros(blocks, kv_heads, P, dim, dtype=ours.dtype) for _ in range(2))
    scales = KVScales(*(torch.full((blocks, kv_heads, P), math.nan) for _ in range(2)))
    fused = torch.cat([x, -x], dim=1)  # strided, as they come out of a fused projection
    slots = torch.arange(blocks * P).flip(0)[:tokens]
    new = fused[:, :kv_heads], fused[:, kv_heads:]
    backend.write(*new, k_cache, v_cache, slots, scales)
    for cache, scale in zip((k_cache, v_cache), scales, strict=True):
        yield cache.float()[slots // P, :, slots % P], scale[slots // P, :, slots % P]


@pytest.mark.parametrize("name", sorted(BACKENDS))
@quantizers
def test_every_backend_writes_the_codes_that_torch_makes(name, ours):
    spoilt = torch.randn(4, KV_HEADS, DIM)
    spoilt[0, 0, 3], spoilt[1, 1, 5], spoilt[2] = math.nan, -math.inf, 1e-31
    x = torch.cat([*(x[1:4] for x in KINDS.values()), spoilt])
    for (codes, scales), rows in zip(fill(BACKENDS[name](), ours, x), (x, -x), strict=True):
        want, want_scales = ours.quantize(rows)
        assert torch.equal(codes, want.float())
        torch.testing.assert_close(scales, want_scales, rtol=0, atol=0, equal_nan=True)


def test_a_number_takes_its_share_of_a_scale():
    assert bytes_per_number(torch.int8, 64) == 1 + 4 / 64
    assert bytes_per_number(torch.float8_e4m3fn, 128) == 1 + 4 / 128
    assert bytes_per_number(torch.bfloat16, 64) == 2


class Truncates(Int8Quantizer):
    def _round(self, x):
        return x.to(torch.int8)


class RoundsUp(Int8Quantizer):
    def _round(self, x):
        return x.ceil().clamp(max=127).to(torch.int8)


class DividesByZero(Int8Quantizer):
    def quantize(self, x):
        scales = x.abs().amax(-1) / 127
        return (x / scales[..., None]).round().to(torch.int8), scales


class OneScale(Int8Quantizer):
    def quantize(self, x):
        scale = x.abs().max().clamp(min=1e-9) / 127
        return (x / scale).round().to(torch.int8), scale.repeat(*x.shape[:2])


class ScaleOfTheToken(Int8Quantizer):
    def quantize(self, x):
        scale = x.abs().amax((1, 2), keepdim=True).clamp(min=1e-30) / 127
        codes = (x / scale).round().to(torch.int8)
        return codes, scale.squeeze(-1).repeat(1, x.shape[1])


class ScaleWithoutItsAxis(Int8Quantizer):
    def quantize(self, x):
        codes, scales = super().quantize(x)
        return codes, scales[..., None]


class HalfScales(Int8Quantizer):
    def quantize(self, x):
        codes, scales = super().quantize(x)
        return codes, scales.half()


class WrapsRound(Int8Quantizer):
    def quantize(self, x):
        scales = x.abs().amax(-1) / 128
        codes = (x / scales[..., None].clamp(min=1e-30)).round()
        return codes.to(torch.int32).to(torch.int8), scales


class ForgetsTheScale(Int8Quantizer):
    def dequantize(self, codes, scales):
        return codes.float()


class Fails(Int8Quantizer):
    def quantize(self, x):
        return x[0][9]


WRONG = {
    Truncates: "rounds towards zero: numbers are off by 0.4",
    RoundsUp: "rounds up: numbers are off by 0.",
    DividesByZero: "makes NaN of zeros, by div",
    OneScale: "loses too much of ",
    ScaleOfTheToken: "loses too much of heads of different sizes|loses too much of normal",
    ScaleWithoutItsAxis: r"returned scales of shape \[64, 8, 1\] and torch.float32, expected \[64,",
    HalfScales: "returned scales of shape .* and torch.float16",
    WrapsRound: "loses too much of|rounds",
    ForgetsTheScale: "dequantizes to something else than code",
    Fails: "raised IndexError in quantize",
    Fp8Quantizer: "has dtype torch.float8_e4m3fn, but kv_cache_dtype asks for torch.int8",
    Int8Quantizer(): "give a class, which the engine builds",
}


@pytest.mark.parametrize(("value", "message"), WRONG.items(), ids=lambda x: str(x)[:40])
def test_a_wrong_quantizer_is_told_at_the_door_what_is_wrong(value, message):
    with pytest.raises(PartError, match=message):
        fit_kv_quantizer(Part("kv_quantizer", value), torch.int8)


def test_a_right_quantizer_is_let_in_and_multiplied_by_the_kernels():
    quantizer = fit_kv_quantizer(Part("kv_quantizer", MyKVQuantizer), torch.int8)
    x = torch.randn(5, 2, DIM)
    codes, scales = quantizer.quantize(x)
    read = quantizer.dequantize(codes, scales)
    assert torch.equal(read, dequantize(codes, scales, torch.float32))
