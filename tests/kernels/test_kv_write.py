"""Keys and values land in their slots, bit for bit, and nothing else changes."""

import numpy as np
import pytest
import torch
from minillm_serve.kernels.kv_write import kv_write, kv_write_reference

from tests.kernels.interpret import DEVICE, poisoned

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def random(*shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw).to(DEVICE, dtype)


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def write_and_compare(k, v, k_cache, v_cache, slots):
    want_k, want_v = k_cache.clone(), v_cache.clone()
    kv_write_reference(k, v, want_k, want_v, slots)
    kv_write(k, v, k_cache, v_cache, slots)
    assert_same(k_cache, want_k)
    assert_same(v_cache, want_v)
    assert not k_cache.isnan().all()


@pytest.mark.parametrize("block_size", [1, 3, 16, 256])
@pytest.mark.parametrize(("kv_heads", "dim"), [(1, 16), (3, 24), (8, 64), (4, 80), (5, 256)])
def test_every_token_lands_in_its_slot_amid_nan_b139(kv_heads, dim, block_size):
    slots = torch.randperm(6 * block_size)[:5].to(DEVICE)
    k, v = random(5, kv_heads, dim), random(5, kv_heads, dim, seed=1)
    caches = (poisoned(6, kv_heads, block_size, dim) for _ in range(2))
    write_and_compare(k, v, *caches, slots)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
def test_bits_are_kept_in_any_dtype(dtype, slot_dtype):
    slots = torch.tensor([7, 0, 4], device=DEVICE, dtype=slot_dtype)
    caches = (poisoned(3, 2, 4, 64, dtype=dtype) for _ in range(2))
    write_and_compare(random(3, 2, 64, dtype=dtype), random(3, 2, 64, dtype=dtype), *caches, slots)


def test_a_padding_row_writes_nothing():
    slots = torch.tensor([-1, 5, -1], device=DEVICE)
    k_cache, v_cache = poisoned(2, 2, 4, 16), poisoned(2, 2, 4, 16)
    write_and_compare(random(3, 2, 16), random(3, 2, 16), k_cache, v_cache, slots)
    assert k_cache.isnan().sum() == k_cache.numel() - 2 * 16


def test_keys_may_be_part_of_a_projection_and_both_caches_of_one_tensor_b133():
    qkv = random(4, 11, 24)  # 5 query heads, 3 key heads, 3 value heads
    caches = poisoned(6, 3, 2, 5, 24)  # block, head, key or value, row
    slots = torch.tensor([29, 3, 11, 12], device=DEVICE)
    write_and_compare(qkv[:, 5:8], qkv[:, 8:], caches[:, :, 0], caches[:, :, 1], slots)


def test_a_cache_in_another_dtype_is_converted_to():
    caches = (poisoned(2, 2, 4, 16, dtype=torch.bfloat16) for _ in range(2))
    slots = torch.tensor([6, 1], device=DEVICE)
    write_and_compare(random(2, 2, 16), random(2, 2, 16, seed=1), *caches, slots)


def huge_cache(*shape):
    """On a CPU memory is taken only where something is written."""
    if DEVICE == "cuda":
        return torch.zeros(*shape, dtype=torch.float16, device=DEVICE)
    return torch.from_numpy(np.zeros(shape, np.float16))


def test_slots_beyond_two_billion_elements_are_reached_b140():
    cache = huge_cache(2**31 // 1024 + 8, 2, 4, 128)
    assert cache.numel() > 2**31
    k = random(1, 2, 128, dtype=torch.float16)
    kv_write(k, k + 1, cache, cache, slots(4 * len(cache) - 1))
    assert torch.equal(cache[-1, :, 3], k[0] + 1)


def slots(*values):
    return torch.tensor(values, device=DEVICE)


def test_what_does_not_fit_is_refused_by_name():
    k, caches = random(2, 2, 16), (poisoned(2, 2, 4, 16), poisoned(2, 2, 4, 16))
    with pytest.raises(ValueError, match=r"v has shape \[2, 1, 16\], must have \[2, 2, 16\]"):
        kv_write(k, k[:, :1], *caches, slots(0, 1))
    with pytest.raises(ValueError, match=r"k_cache has shape .* must have \[any, 2, any, 16\]"):
        kv_write(k, k, caches[0][:, :1], caches[1], slots(0, 1))
    with pytest.raises(ValueError, match=r"slot_mapping has shape \[3\], must have \[2\]"):
        kv_write(k, k, *caches, slots(0, 1, 2))
    with pytest.raises(ValueError, match=r"slot_mapping is torch\.float32"):
        kv_write(k, k, *caches, slots(0.0, 1.0))
    if DEVICE == "cpu":
        with pytest.raises(ValueError, match=r"slot_mapping holds 8: the cache has slots 0 \.\. 7"):
            kv_write(k, k, *caches, slots(0, 8))
        with pytest.raises(ValueError, match="slot_mapping holds -2"):
            kv_write(k, k, *caches, slots(-2, 8))
