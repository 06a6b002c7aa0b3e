"""Copies of blocks that a step asks for, in every layer, and in their order."""

import pytest
import torch

from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.kv_quantizer import KV_CACHE_DTYPES, QUANTIZERS, as_bits


@pytest.fixture(params=["numbers", "int8", "fp8"])
def cache(request):
    """Two layers, 6 blocks of 4 tokens; no two numbers alike, or no two scales."""
    numbers = torch.arange(4 * 6 * 3 * 4 * 6.0).view(4, 6, 3, 4, 6)
    halves = list(numbers[:2].clone()), list(numbers[2:].clone())
    if request.param == "numbers":
        return KVCache(*halves)
    ours = QUANTIZERS[KV_CACHE_DTYPES[request.param]]
    (k, k_scale), (v, v_scale) = (
        map(list, zip(*map(ours.quantize, half), strict=True)) for half in halves
    )
    return KVCache(k, v, k_scale=k_scale, v_scale=v_scale)


def everything(cache):
    return [*map(as_bits, (*cache.k, *cache.v)), *cache.k_scale, *cache.v_scale]


def test_a_copy_has_all_layers_and_scales_and_touches_nothing_else_b127(cache):
    before = [tensor.clone() for tensor in everything(cache)]
    cache.copy_blocks(((0, 3), (0, 5), (4, 1)))
    for old, new in zip(before, everything(cache), strict=True):
        assert torch.equal(new[[3, 5, 1]], old[[0, 0, 4]])
        assert torch.equal(new[[0, 2, 4]], old[[0, 2, 4]])


def test_no_copy_costs_nothing(cache):
    before = cache.k[0].clone()
    cache.copy_blocks(())
    assert torch.equal(cache.k[0], before)
