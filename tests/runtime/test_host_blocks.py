"""Blocks on the host: what was copied out comes back, and nothing else is touched."""

import pytest
import torch

from minillm_serve.runtime.host_blocks import HostBlocks
from tests.runtime.caches import everything


@pytest.fixture(params=["torch", "kernel"])
def make(request):
    """On a GPU a kernel gathers what is copied: here the interpreter runs it."""

    def build(cache, num_blocks):
        host = HostBlocks(cache, num_blocks)
        host._is_cuda = request.param == "kernel"
        return host

    return build


def copies(cache):
    return [tensor.clone() for tensor in everything(cache)]


def test_blocks_come_back_into_any_place_in_every_layer_with_their_scales_b127(cache, make):
    before, host = copies(cache), make(cache, 3)
    host.swap([(4, 0), (1, 2)], [])
    for tensor in everything(cache):
        tensor.zero_()
    host.swap([], [(2, 5), (0, 3)])
    for was, tensor in zip(before, everything(cache), strict=True):
        assert torch.equal(tensor[5], was[1])
        assert torch.equal(tensor[3], was[4])
        assert not tensor[[0, 1, 2, 4]].any()


def test_what_goes_out_is_read_before_what_comes_in_is_written(cache, make):
    before, host = copies(cache), make(cache, 2)
    host.swap([(1, 0)], [])
    host.swap([(2, 1)], [(0, 2)])
    host.swap([], [(1, 3)])
    for was, tensor in zip(before, everything(cache), strict=True):
        assert torch.equal(tensor[2], was[1])
        assert torch.equal(tensor[3], was[2])


def test_it_takes_as_many_bytes_as_the_blocks_of_the_cache(cache):
    assert HostBlocks(cache, 6).nbytes == cache.nbytes
