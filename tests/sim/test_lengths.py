"""Distributions of token counts: what they promise, and what they refuse."""

import numpy as np
import pytest

from minillm_serve.sim.lengths import Empirical, Fixed, Geometric, Lengths, LogNormal, Uniform

DISTRIBUTIONS = [
    Fixed(7),
    Uniform(16, 160),
    Geometric(40.0),
    LogNormal(200.0, cv=1.5),
    Empirical([3, 3, 50, 900]),
]


@pytest.mark.parametrize("lengths", DISTRIBUTIONS, ids=repr)
def test_draws_are_whole_positive_and_average_to_the_stated_mean(lengths: Lengths) -> None:
    drawn = lengths.sample(np.random.default_rng(0), 100_000)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    error = 5 * max(float(drawn.std()), 1e-9) / 100_000**0.5
    assert abs(drawn.mean() - lengths.mean) <= error


@pytest.mark.parametrize("lengths", DISTRIBUTIONS, ids=repr)
def test_one_seed_gives_one_sequence(lengths: Lengths) -> None:
    first, again, other = (
        lengths.sample(np.random.default_rng(seed), 100).tolist() for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other or isinstance(lengths, Fixed)


def test_uniform_reaches_both_ends_and_nothing_beyond() -> None:
    drawn = Uniform(2, 4).sample(np.random.default_rng(0), 1000)
    assert set(drawn.tolist()) == {2, 3, 4}


def test_geometric_has_the_spread_of_a_memoryless_service() -> None:
    """The standard deviation of a geometric of mean m is sqrt(m**2 - m): a cv just below 1."""
    drawn = Geometric(100.0).sample(np.random.default_rng(0), 100_000)
    assert drawn.std() == pytest.approx((100**2 - 100) ** 0.5, rel=0.02)


def test_lognormal_has_the_stated_spread_and_is_cut_at_its_longest() -> None:
    rng = np.random.default_rng(0)
    drawn = LogNormal(500.0, cv=0.8).sample(rng, 200_000)
    assert drawn.std() / drawn.mean() == pytest.approx(0.8, rel=0.03)
    assert LogNormal(500.0, cv=2.0, high=512).sample(rng, 10_000).max() == 512


def test_empirical_draws_what_was_seen_as_often_as_it_was_seen() -> None:
    drawn = Empirical([5, 5, 5, 80]).sample(np.random.default_rng(0), 20_000)
    assert set(drawn.tolist()) == {5, 80}
    assert (drawn == 5).mean() == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(0), r"Fixed.tokens is 0: give a whole number of tokens"),
        (lambda: Fixed(2.5), r"Fixed.tokens is 2.5"),  # type: ignore[arg-type]
        (lambda: Fixed(True), r"Fixed.tokens is True"),
        (lambda: Uniform(5, 4), r"Uniform\(5, 4\): give low <= high"),
        (lambda: Geometric(0.5), r"Geometric.mean is 0.5"),
        (lambda: LogNormal(float("nan")), r"LogNormal.mean is nan"),
        (lambda: LogNormal(10, cv=0), r"LogNormal.cv is 0: .* or use Fixed"),
        (lambda: LogNormal(10, high=0), r"LogNormal.high is 0"),
        (lambda: Empirical([]), r"Empirical.tokens is empty"),
        (lambda: Empirical([3, -1]), r"Empirical.tokens holds one that is -1"),
    ],
)
def test_impossible_lengths_are_refused_by_name(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
