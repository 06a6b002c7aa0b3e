"""Copies of blocks that a step asks for, in every layer, and in their order."""

import pytest
import torch

from minillm_serve.runtime.kv_cache import KVCache


@pytest.fixture
def cache():
    """Two layers, 6 blocks of 4 tokens; no two numbers alike."""
    numbers = torch.arange(4 * 6 * 3 * 4 * 5.0).view(4, 6, 3, 4, 5)
    return KVCache(list(numbers[:2].clone()), list(numbers[2:].clone()))


def test_a_copy_has_all_layers_and_touches_nothing_else(cache):
    before = [tensor.clone() for tensor in (*cache.k, *cache.v)]
    cache.copy_blocks(((0, 3), (0, 5), (4, 1)))
    for old, new in zip(before, (*cache.k, *cache.v), strict=True):
        assert torch.equal(new[[3, 5, 1]], old[[0, 0, 4]])
        assert torch.equal(new[[0, 2, 4]], old[[0, 2, 4]])


def test_no_copy_costs_nothing(cache):
    before = cache.k[0].clone()
    cache.copy_blocks(())
    assert torch.equal(cache.k[0], before)
