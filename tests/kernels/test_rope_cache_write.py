"""Norm, rotation and cache write in one, against float64 and against the model's own steps."""

import pytest
import torch
from minillm_serve.kernels.rope_cache_write import (
    rope_cache_write,
    rope_cache_write_reference,
    rotation_table,
)

from minillm_serve.models import functional
from minillm_serve.models.rope import rotation
from minillm_serve.runtime.kv_conformance import allowed_error
from minillm_serve.runtime.kv_quantizer import QUANTIZERS, dequantize
from tests.kernels.interpret import DEVICE, assert_rounded, poisoned

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EPS = 1e-6
POSITIONS = [3, 99, 0, 7, 1]
SLOTS = [5, 0, 17, 23, 8]


def random(*shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw).to(DEVICE, dtype)


def frequencies(dim):
    return (1 / 10000 ** (torch.arange(0, dim, 2) / dim)).to(DEVICE)


def ints(values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def run_and_compare(
    qkv, k_cache, v_cache, *, positions=POSITIONS, slots=SLOTS, weight=None, index=torch.int64
):
    """Runs the kernel into poison and compares what it wrote, and what it left, with float64."""
    tokens, rows, dim = qkv.shape
    table = rotation_table(frequencies(dim), 100)
    wide = [cache.double() for cache in (k_cache, v_cache)]
    want = rope_cache_write_reference(
        qkv.double(), ints(positions), ints(slots), table, *wide,
        norm_weight=None if weight is None else weight.double(), eps=EPS,
    )  # fmt: skip
    out = poisoned(tokens, rows - 2 * k_cache.shape[1], dim, dtype=qkv.dtype)
    q = rope_cache_write(
        qkv, ints(positions, index), ints(slots, index), table, k_cache, v_cache,
        norm_weight=weight, eps=EPS, out=out,
    )  # fmt: skip
    assert q is out
    stored = ints(slots) >= 0
    assert_rounded(q[stored], want[stored])
    assert q[~stored].isnan().all()
    for cache, want_cache in zip((k_cache, v_cache), wide, strict=True):
        written = ~want_cache.isnan()
        assert torch.equal(~cache.isnan(), written)
        assert_rounded(cache[written], want_cache[written])


def caches(kv_heads, dim, block_size=5, dtype=torch.float32):
    blocks = -(-24 // block_size) + 1
    return [poisoned(blocks, kv_heads, block_size, dim, dtype=dtype) for _ in range(2)]


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [(4, 4, 16), (3, 1, 24), (9, 3, 64), (7, 1, 80), (6, 2, 96), (32, 1, 128), (2, 2, 256)],
)
def test_head_sizes_and_groups_equal_float64_b139(heads, kv_heads, dim, normed):
    qkv = random(5, heads + 2 * kv_heads, dim)
    weight = random(heads + kv_heads, dim, seed=1) if normed else None
    run_and_compare(qkv, *caches(kv_heads, dim), weight=weight)


@pytest.mark.parametrize("block_size", [1, 3, 16, 256])
def test_any_block_size_equals_float64(block_size):
    run_and_compare(random(5, 8, 32), *caches(2, 32, block_size))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [False, True])
def test_sixteen_bits_lose_no_more_than_the_rounding_of_the_output(dtype, normed):
    weight = random(6, 64, seed=1, dtype=dtype) if normed else None
    qkv = random(5, 8, 64, dtype=dtype)
    run_and_compare(qkv, *caches(2, 64, dtype=dtype), weight=weight, index=torch.int32)


def test_a_padding_row_writes_nothing_and_reads_no_position():
    run_and_compare(
        random(5, 8, 32), *caches(2, 32), slots=[5, -1, 17, -1, 8], positions=[3, 0, 9, 0, 99]
    )


def test_the_projection_may_be_strided_amid_nan_and_the_caches_one_tensor_b133():
    room = poisoned(7, 11, 48)
    qkv = room[1:-1, 1:-2, 8:-8]
    qkv.copy_(random(5, 8, 32))
    both = poisoned(7, 2, 2, 4, 32)  # block, head, key or value, row
    run_and_compare(qkv, both[:, :, 0], both[:, :, 1])


@pytest.mark.parametrize("normed", [False, True])
def test_it_is_what_the_model_does_in_three_steps(normed):
    heads, kv_heads, dim = 6, 2, 64
    qkv, weight = random(5, 10, dim), random(8, dim, seed=1)
    k_cache, v_cache = caches(kv_heads, dim)
    table = rotation_table(frequencies(dim), 100)
    q = rope_cache_write(
        qkv, ints(POSITIONS), ints(SLOTS), table, k_cache, v_cache,
        norm_weight=weight if normed else None, eps=EPS,
    )  # fmt: skip
    qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
    qk = functional.rms_norm(qk, weight, EPS) if normed else qk
    want = functional.rotate(qk, *rotation(ints(POSITIONS), frequencies(dim), torch.float32))
    torch.testing.assert_close(q, want[:, :heads], rtol=1e-5, atol=1e-5)
    for token, slot in enumerate(SLOTS):
        stored_k, stored_v = (cache[slot // 5, :, slot % 5] for cache in (k_cache, v_cache))
        torch.testing.assert_close(stored_k, want[token, heads:], rtol=1e-5, atol=1e-5)
        assert torch.equal(stored_v, v[token])


def test_a_query_and_a_key_meet_at_an_angle_that_only_their_distance_sets():
    q, k = random(1, 1, 64), random(1, 1, 64, seed=1)
    table = rotation_table(frequencies(64), 5000)
    scores = []
    for start in (0, 1, 1000, 4000):
        k_cache, v_cache = caches(1, 64)
        qkv = torch.cat((q, k, k), 1).repeat(2, 1, 1)
        where, slots = ints([start, start + 7]), ints([0, 1])
        turned = rope_cache_write(qkv, where, slots, table, k_cache, v_cache)
        scores.append(turned[1, 0] @ k_cache[0, 0, 0])
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(4), rtol=1e-4, atol=1e-3)


def test_what_does_not_fit_is_refused_by_name():
    table, both = rotation_table(frequencies(32), 100), caches(2, 32)
    qkv, two = random(2, 8, 32), ints([0, 1])
    with pytest.raises(ValueError, match=r"qkv has shape \[2, 4, 32\] and k_cache 2 heads"):
        rope_cache_write(qkv[:, :4], two, two, table, *both)
    with pytest.raises(ValueError, match=r"table has shape \[100, 30\], must have \[any, 32\]"):
        rope_cache_write(qkv, two, two, table[:, :30], *both)
    with pytest.raises(ValueError, match=r"table is torch\.bfloat16, must be torch\.float32"):
        rope_cache_write(qkv, two, two, table.bfloat16(), *both)
    with pytest.raises(ValueError, match=r"norm_weight has shape \[32\], must have \[6, 32\]"):
        rope_cache_write(qkv, two, two, table, *both, norm_weight=random(32))
    with pytest.raises(ValueError, match=r"positions has shape \[1\], must have \[2\]"):
        rope_cache_write(qkv, two[:1], two, table, *both)
    with pytest.raises(ValueError, match=r"out has shape \[2, 3, 32\], must have \[2, 4, 32\]"):
        rope_cache_write(qkv, two, two, table, *both, out=poisoned(2, 3, 32))
    if DEVICE == "cpu":
        with pytest.raises(ValueError, match=r"positions holds 100: the table knows 0 \.\. 99"):
            rope_cache_write(qkv, ints([0, 100]), two, table, *both)
        with pytest.raises(ValueError, match="slot_mapping holds 30"):
            rope_cache_write(qkv, two, ints([0, 30]), table, *both)


@pytest.mark.parametrize("kv_dtype", list(QUANTIZERS), ids=["int8", "fp8"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(3, 1, 24), (9, 3, 64)])
def test_codes_are_those_of_rotated_keys_and_of_values(kv_dtype, normed, heads, kv_heads, dim):
    qkv, table = random(5, heads + 2 * kv_heads, dim), rotation_table(frequencies(dim), 100)
    weight = random(heads + kv_heads, dim, seed=1) if normed else None
    wide = [cache.double() for cache in caches(kv_heads, dim)]
    given = ints(POSITIONS), ints(SLOTS), table
    want_q = rope_cache_write_reference(
        qkv.double(), *given, *wide, norm_weight=None if weight is None else weight.double()
    )
    codes = [cache.nan_to_num(7.0).to(kv_dtype) for cache in caches(kv_heads, dim)]
    scales = [poisoned(*cache.shape[:3]) for cache in codes]
    named = dict(zip(("k_scale", "v_scale"), scales, strict=True))
    q = rope_cache_write(qkv, *given, *codes, norm_weight=weight, **named)
    assert_rounded(q, want_q)
    for cache, scale, want in zip(codes, scales, wide, strict=True):
        written = ~want.isnan()
        assert torch.equal(~scale.isnan(), written.all(-1))
        assert (cache.float()[~written] == 7).all()
        got = dequantize(cache, scale, torch.float64)[written].view(-1, dim)
        rows = want[written].view(-1, dim)
        assert ((got - rows).abs() <= allowed_error(rows, kv_dtype) + 1e-5).all()


def test_codes_without_scales_and_scales_without_codes_are_refused():
    qkv, table = random(5, 9, 24), rotation_table(frequencies(24), 100)
    given = qkv, ints(POSITIONS), ints(SLOTS), table
    numbers = caches(2, 24)
    codes, scale = [cache.nan_to_num().to(torch.int8) for cache in numbers], numbers[0][..., 0]
    with pytest.raises(ValueError, match=r"k_cache is torch\.int8, codes, which need scales"):
        rope_cache_write(*given, *codes)
    with pytest.raises(ValueError, match=r"k_cache is torch\.float32, numbers, which have no"):
        rope_cache_write(*given, *numbers, k_scale=scale, v_scale=scale)
    with pytest.raises(ValueError, match=r"k_scale has shape .*, must have \[6, 2, 5\]"):
        rope_cache_write(*given, *codes, k_scale=scale[:2], v_scale=scale)
    apart = scale.contiguous().mT.contiguous().mT
    with pytest.raises(ValueError, match="v_scale has strides"):
        rope_cache_write(*given, *codes, k_scale=scale.contiguous(), v_scale=apart)
