"""Attention over two sets of keys, merged, is attention over both."""

import math

import pytest
import torch
from minillm_serve.kernels.attention_reference import merge
from minillm_serve.kernels.merge_states import merge_states

from tests.kernels.interpret import DEVICE, assert_rounded, poisoned

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def random(*shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw).to(DEVICE, dtype)


def states(tokens, heads, dim, dtype=torch.float32):
    """Two results, and how much each weighs: from nearly nothing to nearly everything."""
    a, b = (random(tokens, heads, dim, dtype=dtype, seed=seed) for seed in (0, 1))
    lse_a, lse_b = (random(tokens, heads, seed=seed) * 5 for seed in (2, 3))
    return a, lse_a, b, lse_b


def reference(a, lse_a, b, lse_b):
    return merge(torch.stack((a, b)).double(), torch.stack((lse_a, lse_b)).double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "dim"), [(1, 16), (9, 64), (7, 80), (32, 128), (3, 256)])
def test_it_equals_float64_b139(heads, dim, dtype):
    given = states(3, heads, dim, dtype)
    out = poisoned(3, heads, dim, dtype=dtype)
    got, lse = merge_states(*given, out=out)
    want, want_lse = reference(*given)
    assert got is out
    assert_rounded(got, want)
    assert_rounded(lse, want_lse)


def test_keys_may_be_cut_anywhere():
    scores, values = random(2, 3, 20) * 3, random(20, 24, seed=1)
    whole = scores.softmax(-1) @ values
    for cut in (1, 10, 19):
        parts = []
        for keys in (slice(0, cut), slice(cut, 20)):
            parts += [scores[..., keys].softmax(-1) @ values[keys], scores[..., keys].logsumexp(-1)]
        got, lse = merge_states(*parts)
        torch.testing.assert_close(got, whole, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


def test_a_state_that_saw_nothing_weighs_nothing_whatever_it_holds_b137():
    a, lse_a, b, lse_b = states(3, 2, 16)
    lse_a[0], lse_b[1] = -math.inf, -math.inf
    lse_a[2], lse_b[2] = -math.inf, -math.inf
    a[0], b[1], a[2], b[2] = (torch.nan,) * 4
    got, lse = merge_states(a, lse_a, b, lse_b)
    assert torch.equal(got, torch.stack((b[0], a[1], torch.zeros_like(a[2]))))
    assert torch.equal(lse, torch.stack((lse_b[0], lse_a[1], lse_a[2])))


def test_states_may_be_strided_amid_nan_and_the_result_take_their_place_b133():
    room = poisoned(5, 6, 2, 40)
    a, b = room[::2, 1:4, 0, 8:-8], room[::2, 1:4, 1, 8:-8]
    first, lse_a, second, lse_b = states(3, 3, 24)
    a.copy_(first)
    b.copy_(second)
    want, _ = reference(first, lse_a, second, lse_b)
    got, _ = merge_states(a, lse_a, b, lse_b, out=a)
    assert got is a
    assert_rounded(got, want)
    assert torch.equal(b, second)


def test_what_does_not_fit_is_refused_by_name():
    a, lse_a, b, lse_b = states(2, 3, 16)
    with pytest.raises(ValueError, match=r"b has shape \[2, 2, 16\], must have \[2, 3, 16\]"):
        merge_states(a, lse_a, b[:, :2], lse_b)
    with pytest.raises(ValueError, match=r"lse_b is torch\.float64, must be torch\.float32"):
        merge_states(a, lse_a, b, lse_b.double())
    assert merge_states(a[:0], lse_a[:0], b[:0], lse_b[:0])[0].shape == (0, 3, 16)
