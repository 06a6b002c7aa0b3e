"""Who comes when: seeded streams of requests for simulations and load tests.

    chat = open_loop(Poisson(rate=4.0), prompt=Uniform(16, 160), output=LogNormal(64), seed=0)
    for arrival in islice(chat, 1000):
        ...

Streams are generators: a million requests take no more memory than one. They are ordered by time,
so `heapq.merge(chat, batch_jobs)` mixes two of them.

Times, prompts and outputs are drawn from three generators of one seed. So another rate gives the
same requests at other times, and two systems can be compared on one and the same luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from minillm_serve.sim.lengths import Lengths, check_tokens

_CHUNK = 1024  # draws at a time; the same whatever is asked for, so that prefixes agree


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """One request as the outside world sees it.

    Attributes:
        time: when it arrives, in seconds after the stream began.
        prompt_tokens: tokens that it brings.
        output_tokens: tokens that will be generated for it. The world knows; the server does not.
        user: who asks; several requests of one user make a conversation or a closed loop.
    """

    time: float
    prompt_tokens: int
    output_tokens: int
    user: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError for a time below 0 or a length below 1."""
        if not 0 <= self.time < math.inf:
            raise ValueError(f"Arrival.time is {self.time!r}: give seconds from 0 on")
        check_tokens("Arrival.prompt_tokens", self.prompt_tokens)
        check_tokens("Arrival.output_tokens", self.output_tokens)


class Process(Protocol):
    """Moments of arrival, without end."""

    @property
    def rate(self) -> float:
        """Mean arrivals per second [lambda]."""
        ...

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Seconds, ascending."""
        ...


@dataclass(frozen=True, slots=True)
class Regular:
    """One every `1 / rate` seconds: the gentlest load of that rate."""

    rate: float

    def __post_init__(self) -> None:
        """Raises ValueError for a rate that is not positive."""
        _check_positive("Regular.rate", self.rate, "arrivals per second")

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Evenly spaced; `rng` is not used."""
        return _running_sum(lambda: np.full(_CHUNK, 1 / self.rate))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Many people who know nothing of each other: exponential gaps, all moments alike."""

    rate: float

    def __post_init__(self) -> None:
        """Raises ValueError for a rate that is not positive."""
        _check_positive("Poisson.rate", self.rate, "arrivals per second")

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Seconds, ascending; twice the rate gives the same moments at half the time."""
        return _running_sum(lambda: rng.standard_exponential(_CHUNK) / self.rate)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Bursts by the spread of the gaps.

    Attributes:
        rate: mean arrivals per second.
        cv: standard deviation of a gap over its mean. 1 is Poisson, above it bursty, below it
            regular. (vLLM's benchmark calls 1 / cv**2 burstiness, 2024.)
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        """Raises ValueError for a rate or a spread that is not positive."""
        _check_positive("Gamma.rate", self.rate, "arrivals per second")
        _check_positive("Gamma.cv", self.cv, "a spread (Regular is the process without)")

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Seconds, ascending."""
        shape, scale = self.cv**-2, self.cv**2 / self.rate
        return _running_sum(lambda: rng.standard_gamma(shape, _CHUNK) * scale)


@dataclass(frozen=True, slots=True)
class MarkovModulated:
    """Bursts by the hour: a Poisson process whose rate changes (MMPP).

    It goes through its states in order and round again, and stays in each for an exponential time.

    Attributes:
        rates: arrivals per second in each state; 0 is a silent one.
        mean_stays: mean seconds in each state.
    """

    rates: tuple[float, ...]
    mean_stays: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for rates and stays that do not belong together, or nobody coming."""
        if len(self.rates) != len(self.mean_stays) or len(self.rates) < 2:
            raise ValueError(
                f"{len(self.rates)} rates and {len(self.mean_stays)} mean_stays: give one of each "
                "for every state, two states or more"
            )
        for stay in self.mean_stays:
            _check_positive("MarkovModulated.mean_stays", stay, "seconds")
        if not all(0 <= rate < math.inf for rate in self.rates) or not any(self.rates):
            raise ValueError(f"rates={self.rates!r}: give 0 or more for each, above 0 for one")

    @property
    def rate(self) -> float:
        """Mean arrivals per second, each state weighted with its stay."""
        pairs = zip(self.rates, self.mean_stays, strict=True)
        return sum(rate * stay for rate, stay in pairs) / sum(self.mean_stays)

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Seconds, ascending."""
        began = 0.0
        while True:
            for rate, mean_stay in zip(self.rates, self.mean_stays, strict=True):
                ends = began + mean_stay * rng.standard_exponential()
                # Exponential gaps forget: the one that is cut off by the end need not be kept.
                clock = began + rng.standard_exponential() / rate if rate else ends
                while clock < ends:
                    yield clock
                    clock += rng.standard_exponential() / rate
                began = ends


def open_loop(
    process: Process, prompt: Lengths, output: Lengths, *, seed: int = 0
) -> Iterator[Arrival]:
    """Requests that come whatever the server does: an endless stream, cut it with `islice`.

    Args:
        process: when they come.
        prompt: how long the prompts are.
        output: how long the answers are.
        seed: of everything that is drawn.

    Raises:
        ValueError: the seed is negative.
    """
    clock, prompts, outputs = (np.random.default_rng(s) for s in _seeds(seed).spawn(3))
    lengths = zip(_draws(prompt, prompts), _draws(output, outputs), strict=True)
    pairs = zip(process.times(clock), lengths, strict=True)
    return (
        Arrival(time, prompt_tokens, output_tokens, user)
        for user, (time, (prompt_tokens, output_tokens)) in enumerate(pairs)
    )


class ClosedLoop:
    """A fixed number of people, each of whom reads the answer, thinks, and asks again.

    The next request of a user depends on when the last answer came, so this is no stream: the
    simulation asks for it. A closed loop slows down with its server and so cannot overload it; a
    load test that uses one does not show what a crowd would do.

    What a user asks does not depend on the order in which others are answered.
    """

    def __init__(
        self, users: int, think_s: float, prompt: Lengths, output: Lengths, *, seed: int = 0
    ) -> None:
        """Nobody has asked yet.

        Args:
            users: how many people [the concurrency].
            think_s: mean seconds between an answer and the next question; exponential. 0 asks at
                once.
            prompt: how long the prompts are.
            output: how long the answers are.
            seed: of everything that is drawn.

        Raises:
            ValueError: no users, or a negative time or seed.
        """
        if isinstance(users, bool) or not isinstance(users, int) or users < 1:
            raise ValueError(f"users is {users!r}: give a whole number of 1 or more")
        if not 0 <= think_s < math.inf:
            raise ValueError(f"think_s is {think_s!r}: give seconds from 0 on")
        self.think_s, self.prompt, self.output = think_s, prompt, output
        self._draws = [np.random.default_rng(seed) for seed in _seeds(seed).spawn(users)]

    def start(self) -> list[Arrival]:
        """Everybody's first request, in order of time."""
        return sorted(self._ask(user, 0.0) for user in range(len(self._draws)))

    def after(self, arrival: Arrival, finished: float) -> Arrival:
        """The same user's next request, given when this one was answered.

        Raises:
            ValueError: `finished` lies before the request, or the user is not of this loop.
        """
        if not 0 <= arrival.user < len(self._draws):
            raise ValueError(f"user {arrival.user} is not of this loop of {len(self._draws)}")
        if not arrival.time <= finished < math.inf:
            raise ValueError(f"finished={finished!r} is before the request, at {arrival.time} s")
        return self._ask(arrival.user, finished)

    def _ask(self, user: int, now: float) -> Arrival:
        rng = self._draws[user]
        time = now + self.think_s * float(rng.standard_exponential())
        prompt, output = self.prompt.sample(rng, 1), self.output.sample(rng, 1)
        return Arrival(time, int(prompt[0]), int(output[0]), user)


def _seeds(seed: int) -> np.random.SeedSequence:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed is {seed!r}: give a whole number of 0 or more")
    return np.random.SeedSequence(seed)


def _draws(lengths: Lengths, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from lengths.sample(rng, _CHUNK).tolist()


def _running_sum(draw_gaps: Callable[[], NDArray[np.float64]]) -> Iterator[float]:
    clock = 0.0
    while True:
        times = clock + np.cumsum(draw_gaps())
        yield from times.tolist()
        clock = float(times[-1])


def _check_positive(name: str, value: float, what: str) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}: give {what}, above 0")
