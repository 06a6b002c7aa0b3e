"""Blocks are copied bit for bit, in all tensors at once, and no other block changes."""

import pytest
import torch
from minillm_serve.kernels.copy_blocks import copy_blocks, copy_blocks_reference

from tests.kernels.interpret import DEVICE


def bits(*shape, dtype=torch.float32, seed=0):
    """Numbers of all bit patterns, NaNs among them."""
    draw = torch.Generator().manual_seed(seed)
    size = torch.empty(0, dtype=dtype).element_size()
    in_bytes = (*shape[:-1], shape[-1] * size)
    raw = torch.randint(-128, 128, in_bytes, generator=draw, dtype=torch.int8)
    return raw.to(DEVICE).view(dtype)


def assert_same_bits(got, want):
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one.contiguous().view(torch.int8), other.contiguous().view(torch.int8))


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("kv_heads", "block_size", "dim"), [(1, 1, 16), (3, 16, 64), (2, 5, 80)])
def test_copy_on_write_in_every_layer_at_once(kv_heads, block_size, dim, dtype):
    shape = (9, kv_heads, block_size, dim)
    caches = [bits(*shape, dtype=dtype, seed=seed) for seed in range(6)]
    want = [cache.clone() for cache in caches]
    moves = [(0, 3), (0, 8), (7, 1)]
    copy_blocks_reference(want, want, moves)
    copy_blocks(caches, caches, moves)
    assert_same_bits(caches, want)


def test_swapping_out_and_in_brings_everything_back():
    pool = [bits(6, 2, 4, 24, seed=seed) for seed in range(4)]
    staging = [torch.zeros(2, 2, 4, 24, device=DEVICE) for _ in pool]
    want = [cache.clone() for cache in pool]
    copy_blocks(pool, staging, [(5, 0), (2, 1)])
    for cache in pool:
        cache[[2, 5]] = torch.nan
    copy_blocks(staging, pool, [(0, 5), (1, 2)])
    assert_same_bits(pool, want)


def test_keys_and_values_may_share_a_tensor_b133():
    both = bits(5, 2, 3, 4, 16)  # block, key or value, head, row
    want = both.clone()
    want[4] = want[1]
    copy_blocks([both[:, 0], both[:, 1]], [both[:, 0], both[:, 1]], [(1, 4)])
    assert_same_bits([both], [want])


def test_tensors_may_begin_anywhere():
    together = bits(4, 3, 1, 1, 9, dtype=torch.float16)  # three caches of 18 bytes a block
    caches = list(together.unbind(1))
    want = together.clone()
    want[3] = want[0]
    copy_blocks(caches, caches, [(0, 3)])
    assert_same_bits([together], [want])


def test_a_block_in_two_pools_keeps_its_number():
    old, new = [bits(4, 1, 2, 16)], [bits(4, 1, 2, 16, seed=1)]
    copy_blocks(old, new, [(1, 2), (2, 1)])  # a swap of names, which one pool could not do
    assert_same_bits([new[0][1], new[0][2]], [old[0][2], old[0][1]])


def test_nothing_to_move_is_no_work():
    copy_blocks([], [], [(0, 1)])
    copy_blocks([bits(2, 1, 1, 16)], [bits(2, 1, 1, 16)], [])


def test_moves_in_each_others_way_are_refused_by_name():
    pool = [bits(6, 1, 2, 16)]
    with pytest.raises(ValueError, match="moves write block 3 twice"):
        copy_blocks(pool, pool, [(0, 3), (1, 3)])
    with pytest.raises(ValueError, match="moves read and write block 3 of one pool"):
        copy_blocks(pool, pool, [(0, 3), (3, 4)])
    for move in ((6, 0), (0, 6), (-1, 0)):
        with pytest.raises(ValueError, match=r"blocks are 0 \.\. 5 to 0 \.\. 5"):
            copy_blocks(pool, pool, [move])


def test_tensors_that_do_not_fit_together_are_refused_by_name():
    pool = [bits(6, 1, 2, 16), bits(6, 1, 2, 16)]
    move = [(0, 1)]
    with pytest.raises(ValueError, match="2 sources for 1 targets"):
        copy_blocks(pool, pool[:1], move)
    with pytest.raises(ValueError, match=r"targets\[1\] is torch.float16 with blocks of"):
        copy_blocks(pool, [pool[0], pool[1].half()], move)
    with pytest.raises(ValueError, match=r"targets\[0\] is .* with blocks of \[1, 2, 8\]"):
        copy_blocks(pool, [bits(6, 1, 2, 8), bits(6, 1, 2, 8)], move)
    with pytest.raises(ValueError, match=r"sources\[1\] has shape \[5, 1, 2, 16\]"):
        copy_blocks([pool[0], pool[1][:5]], pool, move)
    with pytest.raises(ValueError, match=r"sources\[0\] has strides .*must lie dense in memory"):
        copy_blocks([bits(6, 2, 2, 16).transpose(1, 2)], [bits(6, 2, 2, 16)], move)
