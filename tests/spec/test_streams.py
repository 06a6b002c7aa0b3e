"""The numbers that draw a draft, test it and choose a token are independent of each other."""

import itertools
import random

import numpy as np
import pytest
import torch

from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.randomness import DRAFT, TEST, stream, uniform, uniforms

SIZE, BINS = 40_000, 10
STREAMS = {
    "choosing": lambda seed: seed,
    "drafting": lambda seed: stream(seed, DRAFT),
    "testing": lambda seed: stream(seed, TEST),
}


def test_the_numbers_that_choose_tokens_are_those_of_old():
    found = [uniform(0, 0), uniform(42, 7), uniform(-3, 2**31), uniform(2**80, 1)]
    assert found == [
        0.6524484863740322,
        0.9929056469208896,
        0.5400111254473191,
        0.1663964394676608,
    ]


def test_a_stream_depends_on_its_seed_and_on_nothing_else():
    assert stream(42, TEST) == 11519024256030284050
    assert stream(42, DRAFT) == 14498898874535580551
    assert stream(42 + 2**64, TEST) == stream(42, TEST) != stream(43, TEST)


@pytest.mark.parametrize("pair", [*itertools.combinations(STREAMS, 2)], ids=" and ".join)
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("along", ["positions", "seeds"])
def test_two_streams_are_independent_of_each_other(pair, shift, along):
    """Also where one is drawn a position ahead of the other: a draft's test and the next token."""
    one, other = (STREAMS[name] for name in pair)
    if along == "positions":
        places = np.arange(SIZE)[None]
        first, second = uniforms([one(7)], places), uniforms([other(7)], places + shift)
    else:
        places = np.full((SIZE, 1), 5)
        first = uniforms([one(seed) for seed in range(SIZE)], places)
        second = uniforms([other(seed) for seed in range(SIZE)], places + shift)
    cells = (first * BINS).astype(np.int64) * BINS + (second * BINS).astype(np.int64)
    counts = torch.bincount(torch.from_numpy(cells.ravel()), minlength=BINS**2)
    assert p_value(counts, torch.full((BINS**2,), BINS**-2.0)) > 1e-4


def test_the_same_test_tells_numbers_that_depend_on_each_other():
    numbers = uniforms([7], np.arange(SIZE)[None])
    cells = torch.from_numpy((numbers * BINS).astype(np.int64).ravel())
    counts = torch.bincount(cells * BINS + cells, minlength=BINS**2)
    assert p_value(counts, torch.full((BINS**2,), BINS**-2.0)) == 0


def test_many_numbers_at_once_are_the_same_bit_for_bit_b37_b92():
    chance = random.Random(0)
    seeds = [0, -1, 2**63, 2**64 - 1, -(2**70) + 5, *(chance.getrandbits(90) for _ in range(50))]
    positions = np.array([[chance.getrandbits(40) for _ in range(3)] for _ in seeds])
    want = [
        [uniform(seed, position) for position in row]
        for seed, row in zip(seeds, positions.tolist(), strict=True)
    ]
    assert uniforms(seeds, positions).tolist() == want


@pytest.mark.parametrize(
    ("statistic", "outcomes", "tail"),
    [(3.841459, 2, 0.05), (10.82757, 2, 0.001), (5.991465, 3, 0.05), (21.666, 10, 0.01)],
)
def test_the_tail_of_chi_square_is_that_of_the_tables(statistic, outcomes, tail):
    """Quantiles as any table of the distribution has them (NIST e-Handbook, 1.3.6.7.4)."""
    expected = 10_000.0
    off = (statistic * expected / 2) ** 0.5  # two outcomes are off, the statistic is their sum
    counts = torch.full((outcomes,), expected, dtype=torch.float64)
    counts[0] += off
    counts[1] -= off
    assert p_value(counts, torch.full((outcomes,), 1 / outcomes).double()) == pytest.approx(
        tail, rel=1e-3
    )


def test_an_impossible_outcome_has_no_likelihood():
    assert p_value(torch.tensor([10, 1]), torch.tensor([1.0, 0.0])) == 0
    assert p_value(torch.tensor([10, 0]), torch.tensor([1.0, 0.0])) == 1
