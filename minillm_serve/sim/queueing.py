"""Waiting lines: what the formulas say, and simulations that check them.

People come at lambda a second and can be served at mu a second; rho = lambda / mu is the load.
Every formula below is exact for its assumptions and infinite from rho = 1 on. Simulations agree
with them within statistical error.

    mm1(lam=3, mu=4).wait                       # seconds in line, one server
    bulk(lam=3, mu=1, seats=8).wait             # one server that takes up to 8 at once: a bus
    slots(lam=3, rate=lambda n: ..., places=8)  # 8 places that fill one by one: a metro
    run_slots(...), run_bulk(...)               # the same, request by request
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minillm_serve.sim.queue_runs import Run, run_bulk, run_slots

__all__ = [
    "Run",
    "Stationary",
    "bulk",
    "mg1",
    "mm1",
    "run_bulk",
    "run_slots",
    "service_rate",
    "slots",
]


@dataclass(frozen=True, slots=True)
class Stationary:
    """A queue's long-run averages. They obey Little's law: waiting = lambda * wait (Little, 1961).

    Attributes:
        rho: load; from 1 on the averages are infinite.
        wait: seconds from arrival until service begins.
        response: seconds from arrival until service ends.
        waiting: people in line.
        present: people in line and in service.
    """

    rho: float
    wait: float
    response: float
    waiting: float
    present: float


def service_rate(
    batch: int, output_tokens: float, step_time_s: float, prefill_s: float = 0.0
) -> float:
    """Requests per second that an engine can finish [mu]: where its queue begins to explode.

    A request needs `output_tokens` steps and shares each with the `batch` it runs in; its prompt
    it computes alone:

        mu = 1 / (prefill_s + output_tokens * step_time_s / batch)

    Args:
        batch: sequences in a full batch [B].
        output_tokens: mean tokens of an answer.
        step_time_s: seconds of a decode step at this batch.
        prefill_s: mean seconds of a prompt, during which nobody decodes.

    Raises:
        ValueError: an argument is not positive, or `prefill_s` is negative.
    """
    _check(batch=batch, output_tokens=output_tokens, step_time_s=step_time_s)
    if not 0 <= prefill_s < math.inf:
        raise ValueError(f"prefill_s is {prefill_s!r}: give seconds from 0 on")
    return 1 / (prefill_s + output_tokens * step_time_s / batch)


def mm1(lam: float, mu: float) -> Stationary:
    """Poisson arrivals, exponential service times, one server: wait = rho / (mu - lambda)."""
    return mg1(lam, mu, cv=1.0)


def mg1(lam: float, mu: float, cv: float) -> Stationary:
    """Poisson arrivals, one server, service times of any shape.

    Pollaczek and Khinchine (1930, 1932): wait = (1 + cv**2) / 2 * rho / (mu - lambda).

    Args:
        lam: arrivals per second.
        mu: services per second while busy.
        cv: standard deviation of a service time over its mean: 0 if all take equally long, 1 if
            exponential.

    Raises:
        ValueError: a rate is not positive, or `cv` is negative.
    """
    _check(lam=lam, mu=mu)
    if not 0 <= cv < math.inf:
        raise ValueError(f"cv is {cv!r}: give a spread of 0 or more")
    rho = lam / mu
    if rho >= 1:
        return _exploded(rho)
    wait = (1 + cv**2) / 2 * rho / (mu - lam)
    return _by_little(lam, rho, wait, wait + 1 / mu)


def bulk(lam: float, mu: float, seats: int) -> Stationary:
    """One server that takes all who wait, `seats` at most, and is then gone for a while: a bus.

    Poisson arrivals; a trip takes an exponential time of mean 1 / mu, however many are aboard; who
    comes meanwhile waits for the next one. While it is out, n people wait with a probability that
    falls like r**n, where r in (0, 1) solves

        mu * r**(seats + 1) - (lambda + mu) * r + lambda = 0

    (Bailey, 'On queueing processes with bulk service', 1954; the exponential case).

    Args:
        lam: people per second.
        mu: trips per second.
        seats: of the bus [B]; the load is lam / (seats * mu).

    Raises:
        ValueError: an argument is not positive.
    """
    _check(lam=lam, mu=mu, seats=seats)
    rho = lam / (seats * mu)
    if rho >= 1:
        return _exploded(rho)
    r = _root(lambda x: mu * x ** (seats + 1) - (lam + mu) * x + lam)
    out_and_nobody_waits = 1 / (mu / lam + 1 / (1 - r))
    wait = out_and_nobody_waits * r / (1 - r) ** 2 / lam
    return _by_little(lam, rho, wait, wait + 1 / mu)


def slots(lam: float, rate: Callable[[int], float], places: int) -> Stationary:
    """Places that fill and empty one by one: a metro, or continuous batching.

    A birth-death process: with n people served at once they leave at `rate(n)` together. A constant
    rate is M/M/1 with any number of places; n * mu is M/M/c (Erlang, 1917); an engine has
    rate(n) = n / (output_tokens * step_time(n)).

    Args:
        lam: arrivals per second.
        rate: number in service, 1..places -> departures per second.
        places: most served at once.

    Raises:
        ValueError: an argument or a rate is not positive.
    """
    _check(lam=lam, places=places)
    rates = np.array([rate(n) for n in range(1, places + 1)], dtype=float)
    if not (np.isfinite(rates).all() and (rates > 0).all()):
        raise ValueError(f"rate(n) must be above 0 for n = 1..{places}: it gave {rates.tolist()}")
    rho = float(lam / rates[-1])
    if rho >= 1:
        return _exploded(rho)
    # Probabilities of 0..places people, up to a factor; by logarithms, since products overflow.
    logs = np.concatenate([[0.0], np.cumsum(math.log(lam) - np.log(rates))])
    weight = np.exp(logs - logs.max())
    beyond = weight[-1] * rho / (1 - rho)  # places + 1 and more: a geometric tail
    total = weight.sum() + beyond
    waiting = float(beyond / (1 - rho) / total)
    served = float((np.arange(places + 1) @ weight + places * beyond) / total)
    wait = waiting / lam
    return _by_little(lam, rho, wait, wait + served / lam)


def _by_little(lam: float, rho: float, wait: float, response: float) -> Stationary:
    return Stationary(rho, wait, response, waiting=lam * wait, present=lam * response)


def _exploded(rho: float) -> Stationary:
    return Stationary(rho, math.inf, math.inf, math.inf, math.inf)


def _root(f: Callable[[float], float]) -> float:
    """The root in (0, 1) of a convex function with f(0) > 0, f(1) = 0 and f'(1) > 0; bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return low


def _check(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}: give a number above 0")
