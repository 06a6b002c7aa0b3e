"""Draws by inversion follow the weights, and tokens of weight 0 are never drawn."""

import pytest
import torch

from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.inversion import invert

JUST_BELOW_1 = 1 - 2**-53


def draw_one(weights, draw):
    rows = torch.tensor([weights], dtype=torch.float64)
    return invert(rows, torch.tensor([draw], dtype=torch.float64)).item()


@pytest.mark.parametrize(
    ("draw", "token"), [(0.0, 1), (0.25, 1), (0.3, 1), (0.5, 3), (0.75, 3), (JUST_BELOW_1, 3)]
)
def test_the_first_token_at_which_the_sum_passes_the_draw_is_taken(draw, token):
    assert draw_one([0, 0.5, 0, 0.5, 0], draw) == token
    assert draw_one([0, 3, 0, 3, 0], draw) == token


def test_the_last_possible_token_is_taken_at_the_highest_draw_whatever_the_total_b82():
    """The share of the total must not be rounded up to it: only impossible tokens are beyond."""
    scales = torch.rand(20_000, 1, generator=torch.Generator().manual_seed(0)).double().exp2()
    totals = torch.cat([scales, 2.0 ** torch.arange(-60, 20).double()[:, None]])
    rows = totals * torch.tensor([[0.25, 0.0, 0.75, 0.0]])
    draws = torch.full((len(rows),), JUST_BELOW_1, dtype=torch.float64)
    assert invert(rows, draws).unique().tolist() == [2]


def test_unlikely_tokens_of_a_large_vocabulary_are_not_lost():
    """In float32 the sum of the first half would swallow each token of the second."""
    weights = torch.cat([torch.ones(50_000), torch.full((50_000,), 1e-4)])
    draws = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    late = 1 - draws * 5 / (50_000 + 5)  # draws that fall into the second half, which weighs 5
    tokens = invert(weights.expand(500, -1), late) - 50_000
    assert tokens.min() >= 0
    assert p_value(torch.bincount(tokens // 12_500, minlength=4), torch.full((4,), 0.25)) > 1e-4


@pytest.mark.parametrize("weights", [[0.0, 0.0, 0.0], [0.5, float("nan"), 0.5]])
def test_what_is_no_distribution_still_gives_an_id_of_the_vocabulary_b68(weights):
    assert 0 <= draw_one(weights, 0.7) < 3
