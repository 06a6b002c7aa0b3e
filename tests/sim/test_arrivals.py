"""Streams of requests: their rates, their bursts, their seeds, and a million of them."""

import heapq
import tracemalloc
from itertools import islice, pairwise, takewhile

import numpy as np
import pytest

from minillm_serve.sim.arrivals import (
    Arrival,
    ClosedLoop,
    Gamma,
    MarkovModulated,
    Poisson,
    Process,
    Regular,
    open_loop,
)
from minillm_serve.sim.lengths import Fixed, Geometric, Uniform

PROMPT, OUTPUT = Uniform(16, 160), Geometric(40.0)
BURSTY = MarkovModulated(rates=(1.0, 20.0), mean_stays=(8.0, 2.0))
PROCESSES = [Regular(4.0), Poisson(4.0), Gamma(4.0, cv=3.0), BURSTY]


def times(process: Process, count: int, seed: int = 0) -> np.ndarray:
    return np.fromiter(process.times(np.random.default_rng(seed)), float, count)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_arrivals_ascend_at_the_stated_rate(process: Process) -> None:
    moments = times(process, 100_000)
    assert (np.diff(moments) >= 0).all()
    # Counts over windows give the error, bursts included.
    edges = np.arange(0, moments[-1], moments[-1] / 100)
    counts = np.histogram(moments, edges)[0] / np.diff(edges)
    error = 5 * counts.std() / len(counts) ** 0.5
    assert abs(counts.mean() - process.rate) <= error + 1e-3


def test_gaps_spread_as_the_process_says() -> None:
    def cv(process: Process) -> float:
        gaps = np.diff(times(process, 100_000))
        return float(gaps.std() / gaps.mean())

    assert cv(Regular(4.0)) < 1e-6
    assert cv(Poisson(4.0)) == pytest.approx(1, abs=0.02)
    assert cv(Gamma(4.0, cv=3.0)) == pytest.approx(3, rel=0.05)
    assert cv(Gamma(4.0, cv=0.5)) == pytest.approx(0.5, rel=0.02)
    assert cv(BURSTY) > 1.5


def test_poisson_counts_have_a_variance_equal_to_their_mean_and_bursts_more() -> None:
    def dispersion(process: Process) -> float:
        moments = times(process, 200_000)
        counts = np.histogram(moments, np.arange(0, moments[-1], 5.0))[0]
        return float(counts.var() / counts.mean())

    assert dispersion(Poisson(4.0)) == pytest.approx(1, abs=0.05)
    assert dispersion(BURSTY) > 10


def test_a_silent_state_is_silent() -> None:
    process = MarkovModulated(rates=(0.0, 5.0), mean_stays=(10.0, 10.0))
    moments = times(process, 20_000)
    assert process.rate == 2.5
    assert len(moments) / moments[-1] == pytest.approx(2.5, rel=0.15)
    assert np.diff(moments).max() > 20  # a pause that 5 a second would never make


def test_one_seed_gives_one_stream_whatever_is_taken_of_it() -> None:
    def first(count: int, seed: int = 5) -> list[Arrival]:
        return list(islice(open_loop(Poisson(2.0), PROMPT, OUTPUT, seed=seed), count))

    assert first(3000)[:10] == first(10)
    assert first(10) != first(10, seed=6)


def test_another_rate_gives_the_same_requests_at_other_times() -> None:
    slow, fast = (
        list(islice(open_loop(Poisson(rate), PROMPT, OUTPUT, seed=1), 2000)) for rate in (1.0, 8.0)
    )
    assert [(a.prompt_tokens, a.output_tokens) for a in slow] == [
        (a.prompt_tokens, a.output_tokens) for a in fast
    ]
    assert [a.time for a in slow] == pytest.approx([8 * a.time for a in fast])


def test_other_answers_leave_times_and_prompts_alone() -> None:
    short, long = (
        list(islice(open_loop(Poisson(1.0), PROMPT, output, seed=1), 100))
        for output in (Fixed(1), Geometric(500.0))
    )
    assert [(a.time, a.prompt_tokens) for a in short] == [(a.time, a.prompt_tokens) for a in long]


def test_two_streams_merge_by_time() -> None:
    chat = islice(open_loop(Poisson(5.0), PROMPT, OUTPUT, seed=0), 300)
    jobs = islice(open_loop(Regular(1.0), Fixed(900), Fixed(1), seed=0), 60)
    both = list(heapq.merge(chat, jobs))
    assert len(both) == 360
    assert all(a.time <= b.time for a, b in pairwise(both))


def test_a_million_requests_take_no_room() -> None:
    stream = open_loop(Poisson(1000.0), PROMPT, OUTPUT)
    tracemalloc.start()
    try:
        total = sum(1 for _ in takewhile(lambda a: a.time < 200.0, stream))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == pytest.approx(200_000, rel=0.02)
    assert peak < 2**20


def test_a_closed_loop_never_has_more_requests_out_than_users() -> None:
    loop = ClosedLoop(users=5, think_s=2.0, prompt=PROMPT, output=OUTPUT, seed=0)
    queue, out, most, served = loop.start(), 0, 0, 0
    heapq.heapify(queue)
    clock = 0.0
    while served < 500:
        arrival = heapq.heappop(queue)
        out = sum(a.time <= max(clock, arrival.time) for a in queue) + 1
        most, served = max(most, out), served + 1
        clock = max(clock, arrival.time) + 1.0  # one server, a second each
        heapq.heappush(queue, loop.after(arrival, clock))
    assert most <= 5
    # Each user's cycle is at least think + 1 s, so 5 of them bring less than 5 / 3 a second.
    assert served / clock < 5 / 3


def test_what_a_user_asks_does_not_depend_on_the_order_of_the_others() -> None:
    def ask(order: list[int]) -> dict[int, Arrival]:
        loop = ClosedLoop(users=3, think_s=1.0, prompt=PROMPT, output=OUTPUT, seed=7)
        first = {arrival.user: arrival for arrival in loop.start()}
        return {user: loop.after(first[user], first[user].time + 1) for user in order}

    assert ask([0, 1, 2]) == ask([2, 0, 1])


def test_thinking_takes_the_stated_time_on_average() -> None:
    loop = ClosedLoop(users=1, think_s=3.0, prompt=Fixed(1), output=Fixed(1))
    (arrival,) = loop.start()
    for _ in range(5000):
        arrival = loop.after(arrival, arrival.time)
    assert arrival.time / 5001 == pytest.approx(3.0, rel=0.08)
    eager = ClosedLoop(users=2, think_s=0, prompt=Fixed(1), output=Fixed(1))
    assert [a.time for a in eager.start()] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Arrival(-1.0, 1, 1), r"Arrival.time is -1.0"),
        (lambda: Arrival(float("inf"), 1, 1), r"Arrival.time is inf"),
        (lambda: Arrival(0.0, 0, 1), r"Arrival.prompt_tokens is 0"),
        (lambda: Arrival(0.0, 1, 1.5), r"Arrival.output_tokens is 1.5"),  # type: ignore[arg-type]
        (lambda: Poisson(0), r"Poisson.rate is 0: give arrivals per second, above 0"),
        (lambda: Regular(-2), r"Regular.rate is -2"),
        (lambda: Gamma(1, cv=0), r"Gamma.cv is 0: .*Regular"),
        (lambda: MarkovModulated((1,), (1,)), r"1 rates and 1 mean_stays: .* two states or more"),
        (lambda: MarkovModulated((1, 2), (1, 0)), r"mean_stays is 0"),
        (lambda: MarkovModulated((0, 0), (1, 1)), r"above 0 for one"),
        (lambda: MarkovModulated((1, -1), (1, 1)), r"give 0 or more for each"),
        (lambda: open_loop(Poisson(1), PROMPT, OUTPUT, seed=-1), r"seed is -1"),
        (lambda: ClosedLoop(0, 1.0, PROMPT, OUTPUT), r"users is 0"),
        (lambda: ClosedLoop(1, -1.0, PROMPT, OUTPUT), r"think_s is -1.0"),
        (lambda: ClosedLoop(1, 1.0, PROMPT, OUTPUT).after(Arrival(5.0, 1, 1), 4.0), r"before the"),
        (lambda: ClosedLoop(1, 1.0, PROMPT, OUTPUT).after(Arrival(0, 1, 1, 9), 4.0), r"user 9 is"),
    ],
)
def test_what_cannot_be_is_refused_at_once_and_by_name(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
