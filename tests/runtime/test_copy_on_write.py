"""Copies of blocks that a step asks for, in every layer, and in their order."""

import torch

from tests.runtime.caches import everything


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
