"""The kept set equals that of a full stable sort, ties and all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.core import SamplingParams
from minillm_serve.runtime.sampling import filters
from minillm_serve.runtime.sampling.filters import keep_likely


def reference(probs, params):
    """One row in float64, by the definitions."""
    order = sorted(range(len(probs)), key=lambda i: (-probs[i], i))
    kept = order[: params.top_k] if params.top_k > 0 else order
    total, reached, chosen = sum(probs[i] for i in kept), 0.0, []
    for i in kept:
        if chosen and params.top_p < 1 and reached >= params.top_p * total:
            break
        chosen.append(i)
        reached += probs[i]
    floor = params.min_p * probs[order[0]]
    return {i for i in chosen if probs[i] >= floor} | {order[0]}


def kept(probs, params):
    return [set(row.nonzero().flatten().tolist()) for row in keep_likely(probs, params)]


# Sixteenths add up exactly in float32, so that the borders of top_p are really hit.
weights = st.lists(st.integers(1, 4), min_size=2, max_size=16)
settings_of_a_row = st.builds(
    SamplingParams,
    top_k=st.sampled_from([0, -1, 1, 2, 3, 5, 16, 1000]),
    top_p=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 0.9375, 1.0]),
    min_p=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)


@settings(max_examples=500, deadline=None)
@given(weights, st.lists(settings_of_a_row, min_size=1, max_size=4))
def test_any_filters_keep_what_a_sort_would_keep(row, params):
    probs = torch.tensor([row], dtype=torch.float32) / 64
    got = kept(probs.expand(len(params), -1), params)
    assert got == [reference(probs[0].tolist(), p) for p in params]


@pytest.mark.parametrize("candidates", [1, 2, 7])
def test_rows_that_keep_more_than_the_candidates_are_right_too(monkeypatch, candidates):
    monkeypatch.setattr(filters, "CANDIDATES", candidates)
    probs = torch.softmax(torch.randn(5, 40, generator=torch.Generator().manual_seed(0)), -1)
    params = [
        SamplingParams(top_p=0.99),
        SamplingParams(top_k=3),
        SamplingParams(top_k=30, top_p=0.5),
        SamplingParams(min_p=0.01),
        SamplingParams(top_k=2, top_p=0.0001),
    ]
    assert kept(probs, params) == [
        reference(row.tolist(), p) for row, p in zip(probs, params, strict=True)
    ]


def test_what_is_kept_keeps_its_probability():
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    assert torch.equal(
        keep_likely(probs, [SamplingParams(top_k=2)]), torch.tensor([[0.0, 0.4, 0.0, 0.3]])
    )


def test_a_share_of_what_a_large_top_k_leaves_does_not_depend_on_neighbours():
    generator = torch.Generator().manual_seed(0)
    peaked = torch.softmax(3 * torch.randn(5000, generator=generator), 0)
    params = SamplingParams(top_k=600, top_p=0.5)
    (alone,) = kept(peaked[None], [params])
    beside, _ = kept(torch.stack([peaked, torch.full((5000,), 1 / 5000)]), [params, params])
    assert alone == beside == reference(peaked.tolist(), params)
