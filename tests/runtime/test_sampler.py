"""Greedy and drawn tokens; draws are compared with exact probabilities."""

import math

import pytest
import torch

from minillm_serve.core import Request, SamplingParams, Sequence
from minillm_serve.runtime.sampling.randomness import uniform
from tests.runtime.choosing import choose_tokens

DRAWS = 20_000


def sample(logits, sequences):
    """The tokens; None for a row that gave an error."""
    return [token if token >= 0 else None for token in choose_tokens(logits, sequences)]


def sequence(seed=0, length=3, **params):
    request = Request(
        request_id="r", prompt_token_ids=(1,) * length, params=SamplingParams(seed=seed, **params)
    )
    return Sequence(request)


def frequencies(logits, draws=DRAWS, **params):
    rows = logits.expand(draws, -1)
    tokens = sample(rows, [sequence(seed=seed, **params) for seed in range(draws)])
    return torch.bincount(torch.tensor(tokens), minlength=len(logits)).double()


def assert_follows(counts, probs):
    """Chi-square at the level of one false alarm in 100,000; impossible tokens never appear."""
    assert counts[probs == 0].sum() == 0
    kept = probs > 0
    expected = probs[kept] * counts.sum()
    statistic = ((counts[kept] - expected) ** 2 / expected).sum().item()
    freedom = int(kept.sum()) - 1
    # Wilson and Hilferty's cube-root approximation of the quantile; z = 4.26.
    limit = freedom * (1 - 2 / (9 * freedom) + 4.26 * math.sqrt(2 / (9 * freedom))) ** 3
    assert statistic < limit


LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.9, -3.0, 1.9, 0.0])


def test_greedy_takes_the_most_likely():
    assert sample(LOGITS[None], [sequence(temperature=0)]) == [1]


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-5, 1e-6, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_tiny_temperature_equals_greedy_b81(temperature, dtype):
    logits = (LOGITS[None] * 100).to(dtype)
    assert sample(logits, [sequence(temperature=temperature)]) == [1]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature):
    counts = frequencies(LOGITS, temperature=temperature)
    assert_follows(counts, torch.softmax(LOGITS.double() / temperature, -1))


def test_top_k_keeps_the_k_most_likely():
    probs = torch.softmax(LOGITS.double(), -1)
    probs[probs < probs.sort(descending=True).values[2]] = 0
    assert_follows(frequencies(LOGITS, top_k=3), probs / probs.sum())


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    kept = torch.tensor([0.5, 0.3, 0.0, 0.0], dtype=torch.float64)
    assert_follows(frequencies(probs.log().float(), top_p=0.7), kept / kept.sum())


def test_min_p_drops_what_is_far_below_the_most_likely():
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    kept = torch.tensor([0.5, 0.3, 0.15, 0.0], dtype=torch.float64)
    assert_follows(frequencies(probs.log().float(), min_p=0.2), kept / kept.sum())


@pytest.mark.parametrize("top_p", [0, 1e-9, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_most_likely_is_always_kept_b84(top_p, dtype):
    rows = LOGITS.to(dtype).expand(200, -1)
    assert set(sample(rows, [sequence(seed=s, top_p=top_p) for s in range(200)])) == {1}


@pytest.mark.parametrize("top_k", [0, -1, 8, 9, 10**9])
def test_top_k_beyond_the_vocabulary_keeps_all_b83(top_k):
    got = sample(LOGITS.expand(50, -1), [sequence(seed=s, top_k=top_k) for s in range(50)])
    assert got == sample(LOGITS.expand(50, -1), [sequence(seed=s) for s in range(50)])


def test_top_k_breaks_ties_by_the_lowest_id():
    logits = torch.tensor([0.0, 1.0, 1.0, 1.0])
    tokens = sample(logits.expand(300, -1), [sequence(seed=s, top_k=2) for s in range(300)])
    assert set(tokens) == {1, 2}


def test_a_row_does_not_depend_on_its_neighbours_b89_b91():
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 50, generator=draw) * 3
    rows = [
        sequence(seed=1),
        sequence(temperature=0),
        sequence(seed=2, top_k=5),
        sequence(seed=3, top_p=0.5, temperature=0.7),
        sequence(seed=4, min_p=0.1),
        sequence(seed=5, length=9),
    ]
    alone = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(6)]
    assert sample(logits, rows) == alone
    assert sample(logits.flip(0), rows[::-1]) == alone[::-1]


def test_the_same_seed_and_position_draw_the_same_b37_b92():
    assert uniform(42, 7) == uniform(42, 7)
    assert uniform(42, 7) != uniform(42, 8)
    assert uniform(42, 7) != uniform(43, 7)


def test_draws_are_even_over_positions_and_over_seeds():
    for numbers in (
        [uniform(0, i) for i in range(DRAWS)],
        [uniform(i, 5) for i in range(DRAWS)],
    ):
        assert all(0 <= number < 1 for number in numbers)
        bins = torch.bincount(torch.tensor([int(n * 20) for n in numbers]), minlength=20)
        assert_follows(bins.double(), torch.full((20,), 1 / 20, dtype=torch.float64))


def test_a_banned_token_beside_a_greedy_row_gives_no_nan_b82():
    logits = LOGITS.repeat(2, 1)
    logits[:, 1] = -math.inf
    tokens = sample(logits, [sequence(temperature=0), sequence(seed=3, top_p=0.3)])
    assert tokens[0] == 6
    assert tokens[1] in (3, 6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_is_reported_and_others_are_served_b68(bad):
    logits = LOGITS.repeat(3, 1)
    logits[1, 4] = bad
    rows = [sequence(temperature=0), sequence(seed=1), sequence(seed=1)]
    tokens = sample(logits, rows)
    assert tokens[1] is None
    assert tokens[0] == 1
    assert tokens[2] == sample(LOGITS[None], [sequence(seed=1)])[0]


def test_a_row_without_any_possible_token_is_reported_b88():
    assert sample(torch.full((1, 4), -math.inf), [sequence(seed=0)]) == [None]
