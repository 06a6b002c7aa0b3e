"""Queues: simulation against formula, formula against formula, and both at the edge."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.sim.queueing import (
    Run,
    Stationary,
    bulk,
    mg1,
    mm1,
    run_bulk,
    run_slots,
    service_rate,
    slots,
)

REQUESTS, RUNS = 40_000, 8


def poisson(rng: np.random.Generator, lam: float, count: int = REQUESTS) -> np.ndarray:
    return np.cumsum(rng.exponential(1 / lam, count))


def agrees(run: Callable[[np.random.Generator], Run], formula: Stationary) -> None:
    """Mean wait and response of independent runs lie within five standard errors."""
    runs = [run(np.random.default_rng(seed)) for seed in range(RUNS)]
    warm = REQUESTS // 10  # it starts empty: the first ones wait less
    for name, expected in (("wait", formula.wait), ("response", formula.response)):
        means = [getattr(r, name)[warm:].mean() for r in runs]
        error = np.std(means, ddof=1) / RUNS**0.5
        assert abs(np.mean(means) - expected) <= 5 * error, (name, np.mean(means), expected)
        assert error < 0.15 * expected  # else anything would agree


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_a_simulated_single_server_waits_as_m_m_1_says(rho: float) -> None:
    def run(rng: np.random.Generator) -> Run:
        arrival = poisson(rng, rho)
        return run_slots(arrival, rng.exponential(1.0, REQUESTS), lambda n: 1.0, 1)

    agrees(run, mm1(rho, 1.0))


def test_equal_services_wait_half_as_long_as_exponential_ones() -> None:
    """Pollaczek and Khinchine: the spread of the services costs waiting time."""

    def run(rng: np.random.Generator) -> Run:
        return run_slots(poisson(rng, 0.8), np.ones(REQUESTS), lambda n: 1.0, 1)

    agrees(run, mg1(0.8, 1.0, cv=0.0))
    assert mg1(0.8, 1.0, cv=0.0).wait == pytest.approx(mm1(0.8, 1.0).wait / 2)


@pytest.mark.parametrize("seats", [1, 4, 16])
def test_a_simulated_bus_waits_as_the_formula_of_bulk_service_says(seats: int) -> None:
    def run(rng: np.random.Generator) -> Run:
        trips = iter(rng.exponential(1.0, REQUESTS).tolist())
        return run_bulk(poisson(rng, 0.8 * seats), np.ones(REQUESTS), lambda w: next(trips), seats)

    agrees(run, bulk(0.8 * seats, 1.0, seats))


@pytest.mark.parametrize("places", [2, 8])
def test_simulated_slots_wait_as_m_m_c_says(places: int) -> None:
    def run(rng: np.random.Generator) -> Run:
        arrival = poisson(rng, 0.8 * places)
        return run_slots(arrival, rng.exponential(1.0, REQUESTS), lambda n: 1.0, places)

    agrees(run, slots(0.8 * places, lambda n: float(n), places))


def test_simulated_continuous_batching_waits_as_the_birth_death_chain_says() -> None:
    """A step gets longer with the batch, as an engine's does."""
    places, tokens = 16, 100.0
    full = service_rate(places, tokens, step(places))

    def run(rng: np.random.Generator) -> Run:
        work = rng.exponential(tokens, REQUESTS)
        return run_slots(poisson(rng, 0.8 * full), work, step, places)

    agrees(run, slots(0.8 * full, lambda n: n / (tokens * step(n)), places))


def step(n: int) -> float:
    """Weights, and a cache per sequence: seconds of one step."""
    return 0.010 + 0.002 * n


def test_m_m_1_is_the_same_by_all_three_roads() -> None:
    for lam in (0.1, 0.5, 0.9, 0.99):
        expected = mm1(lam, 1.0)
        assert expected.wait == pytest.approx(lam / (1 - lam))
        for other in (
            bulk(lam, 1.0, 1),
            slots(lam, lambda n: 1.0, 1),
            slots(lam, lambda n: 1.0, 7),
        ):
            assert other.response == pytest.approx(expected.response)
            assert other.present == pytest.approx(lam / (1 - lam))


def test_erlang_c_of_two_servers_is_the_textbooks() -> None:
    """M/M/2: wait = rho**2 / (mu * (1 - rho**2)), rho = lambda / (2 mu)."""
    for lam in (0.2, 1.0, 1.8):
        rho = lam / 2
        got = slots(lam, lambda n: float(n), 2)
        assert got.wait == pytest.approx(rho**2 / (1 - rho**2))


def test_hundreds_of_places_do_not_overflow() -> None:
    got = slots(900.0, lambda n: float(n), 1000)
    assert got.present == pytest.approx(900.0, rel=1e-3)
    assert 0 <= got.wait < 1e-3


@pytest.mark.parametrize("rho", [1.0, 1.5])
def test_from_rho_1_on_the_averages_are_infinite(rho: float) -> None:
    for queue in (
        mm1(rho, 1.0),
        mg1(rho, 1.0, 0.0),
        bulk(8 * rho, 1.0, 8),
        slots(8 * rho, lambda n: float(n), 8),
    ):
        assert queue.rho == pytest.approx(rho)
        assert queue.wait == queue.response == queue.waiting == queue.present == math.inf


@given(st.floats(0.05, 0.98), st.integers(1, 40))
def test_waiting_grows_with_the_load_whatever_the_server(rho: float, places: int) -> None:
    for queue in (
        lambda x: mm1(x, 1.0),
        lambda x: bulk(x * places, 1.0, places),
        lambda x: slots(x * places, lambda n: float(n), places),
    ):
        assert queue(rho).wait <= queue(rho + 0.01).wait
        assert queue(rho).response >= queue(rho).wait


def test_beyond_capacity_the_line_grows_by_the_difference_of_the_rates() -> None:
    rng = np.random.default_rng(0)
    lam, mu = 3.0, 2.0
    run = run_slots(poisson(rng, lam), rng.exponential(1 / mu, REQUESTS), lambda n: 1.0, 1)
    end = run.arrival[-1]
    assert run.waiting_at(end) / end == pytest.approx(lam - mu, rel=0.05)


def test_a_line_of_three_by_hand() -> None:
    run = run_slots([0.0, 1.0, 2.0], [3.0, 2.0, 1.0], lambda n: 1.0, 1)
    assert run.start.tolist() == [0.0, 3.0, 5.0]
    assert run.finish.tolist() == [3.0, 5.0, 6.0]
    assert run.wait.tolist() == [0.0, 2.0, 3.0]
    assert run.waiting_at([0.5, 2.5, 3.5, 6.0]).tolist() == [0, 2, 1, 0]
    assert run.served_at([0.5, 2.5, 3.5, 6.0]).tolist() == [1, 1, 1, 0]


def test_two_places_by_hand_share_the_pace() -> None:
    """Two together take steps of 2 s, one alone of 1 s."""
    run = run_slots([0.0, 0.0, 1.0], [2.0, 3.0, 1.0], lambda n: float(n), 2)
    assert run.start.tolist() == [0.0, 0.0, 4.0]
    assert run.finish.tolist() == [4.0, 6.0, 6.0]


def test_a_bus_by_hand_makes_the_short_wait_for_the_long() -> None:
    run = run_bulk([0.0, 1.0, 1.5, 1.6], [5.0, 1.0, 4.0, 1.0], lambda w: float(w.max()), 2)
    assert run.start.tolist() == [0.0, 5.0, 5.0, 9.0]
    assert run.finish.tolist() == [5.0, 9.0, 9.0, 10.0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0.01, 5)), min_size=1, max_size=40),
    st.integers(1, 6),
)
def test_nobody_is_lost_overtakes_or_works_with_too_many(
    people: list[tuple[float, float]], places: int
) -> None:
    arrival, work = (np.array(column) for column in zip(*sorted(people), strict=True))
    for run in (
        run_slots(arrival, work, step, places),
        run_bulk(arrival, work, lambda w: float(w.max()) * step(len(w)), places),
    ):
        assert (run.start >= run.arrival).all()
        assert (np.diff(run.start) >= 0).all()  # first come, first served
        assert (run.finish >= run.start + work * step(1) * (1 - 1e-9) - 1e-9).all()
        assert run.served_at(run.start).max() <= places
        assert run.served_at(run.finish.max()) == run.waiting_at(run.finish.max()) == 0


def test_nobody_waits_while_a_place_is_free() -> None:
    rng = np.random.default_rng(3)
    run = run_slots(poisson(rng, 5.0, 500), rng.exponential(1.0, 500), step, 4)
    waited = run.start[run.wait > 0]
    assert len(waited) == 0 or run.served_at(waited).min() == 4


def test_service_rate_counts_prompts_and_shared_steps() -> None:
    assert service_rate(1, 100, 0.01) == pytest.approx(1.0)
    assert service_rate(8, 100, 0.02) == pytest.approx(4.0)
    assert service_rate(8, 100, 0.02, prefill_s=0.25) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mm1(0, 1), r"lam is 0: give a number above 0"),
        (lambda: mm1(1, math.inf), r"mu is inf"),
        (lambda: mg1(1, 2, cv=-1), r"cv is -1"),
        (lambda: bulk(1, 1, 0), r"seats is 0"),
        (lambda: slots(1, lambda n: n - 1, 2), r"rate\(n\) must be above 0 for n = 1..2"),
        (lambda: service_rate(0, 1, 1), r"batch is 0"),
        (lambda: service_rate(1, 1, 1, -0.1), r"prefill_s is -0.1"),
        (lambda: run_slots([0.0], [1.0], step, 0), r"0 slots"),
        (lambda: run_slots([1.0, 0.0], [1.0, 1.0], step, 1), r"ascending order"),
        (lambda: run_slots([0.0], [1.0, 1.0], step, 1), r"one of each a request"),
        (lambda: run_slots([0.0], [0.0], step, 1), r"work must be above 0"),
        (lambda: run_slots([0.0], [1.0], lambda n: 0.0, 1), r"with 1 in service it takes 0.0 s"),
        (lambda: run_bulk([0.0], [1.0], lambda w: -1.0, 1), r"with 1 in service it takes -1.0 s"),
    ],
)
def test_impossible_queues_are_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
