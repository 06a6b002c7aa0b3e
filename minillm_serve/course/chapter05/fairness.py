"""Important people and unimportant ones in one line: who waits how long, under which policy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from minillm_serve.core import (
    ContinuousScheduler,
    FirstComeFirstServed,
    Policy,
    Priority,
    ShortestFirst,
)
from minillm_serve.course.chapter05.systems import START, cost_of
from minillm_serve.sim.arrivals import Arrival, Poisson, open_loop
from minillm_serve.sim.cost import Work
from minillm_serve.sim.lengths import Fixed, Geometric
from minillm_serve.sim.outcome import Outcome
from minillm_serve.sim.simulation import Simulation

#: People in one run, how many of them run at once, and every how manieth is unimportant.
PEOPLE, PLACES, EVERY = 600, 8, 6
PROMPT, ANSWER = 256, 128

#: Name -> a policy, given the ageing.
POLICIES: MappingProxyType[str, type[Policy]] = MappingProxyType(
    {"first come, first served": FirstComeFirstServed, "shortest first": ShortestFirst}
)


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a line of people, in order of arrival.

    Attributes:
        waited: seconds until each began [n].
        arrived: when each came [n].
        patient: who is unimportant [n].
        overtaken: how many who came later began earlier [n].
    """

    waited: NDArray[np.float64]
    arrived: NDArray[np.float64]
    patient: NDArray[np.bool_]
    overtaken: NDArray[np.int64]

    @property
    def mean_urgent(self) -> float:
        """Mean wait of the important [s]."""
        return float(self.waited[~self.patient].mean())

    @property
    def mean_patient(self) -> float:
        """Mean wait of the unimportant [s]."""
        return float(self.waited[self.patient].mean())

    @property
    def longest_patient(self) -> float:
        """The longest wait of anybody unimportant [s]."""
        return float(self.waited[self.patient].max())

    @property
    def most_overtaken(self) -> int:
        """By how many later ones the most unlucky of all was overtaken."""
        return int(self.overtaken.max())


def policy_of(name: str, ageing: float | None) -> Policy:
    """A policy by its name; `ageing` counts for "priority" alone.

    Raises:
        ValueError: there is no such policy.
    """
    if name == "priority":
        return Priority(ageing)
    if name not in POLICIES:
        raise ValueError(f"policy={name!r}: choose from priority, {', '.join(POLICIES)}")
    return POLICIES[name]()


def is_patient(arrival: Arrival) -> bool:
    """Whether somebody is unimportant: every sixth is."""
    return arrival.user % EVERY == EVERY - 1


def capacity(system: str = START) -> float:
    """People a second whom a full server can answer at most, to measure the load by [mu]."""
    cost = cost_of(system)
    answer = ANSWER * cost.seconds(Work.decode(PLACES, PROMPT + ANSWER // 2)) / PLACES
    # A chunk beside others reads no weights of its own: only its arithmetic is new.
    reading = cost.terms(Work.prefill(PROMPT))[1]
    return 1 / (answer + reading)


@lru_cache(maxsize=128)
def run(policy: str, *, ageing: float | None = None, load: float = 1.1, p: int = 5) -> Line:
    """A crowd in one line; the important have priority 0.

    Args:
        policy: "priority" or a key of `POLICIES`.
        ageing: newcomers that weigh as much as one step of priority; None: never.
        load: arrivals over what the server can do [rho].
        p: priority of the unimportant; the lower goes first.
    """
    make = partial(ContinuousScheduler, policy=policy_of(policy, ageing))
    cost = cost_of(START)
    simulation = Simulation(
        cost,
        num_blocks=PLACES * 256,
        max_num_seqs=PLACES,
        max_num_batched_tokens=512,
        scheduler=make,
        priority=lambda arrival: p if is_patient(arrival) else 0,
    )
    return line_of(simulation.run(people(load * capacity())))


def people(rate: float, seed: int = 0) -> Iterator[Arrival]:
    """Everybody, in order of arrival, `rate` a second."""
    stream = open_loop(Poisson(rate), Fixed(PROMPT), Geometric(ANSWER), seed=seed)
    return islice(stream, PEOPLE)


def line_of(outcome: Outcome) -> Line:
    """An outcome in order of arrival."""
    order = np.argsort(outcome.users)
    arrived, waited = outcome.arrivals[order], outcome.waiting[order]
    began = arrived + waited
    patient = outcome.users[order] % EVERY == EVERY - 1
    later = np.arange(len(began))[None, :] > np.arange(len(began))[:, None]
    overtaken = (later & (began[None, :] < began[:, None])).sum(axis=1)
    return Line(waited, arrived, patient, overtaken)


def bound(ageing: float | None, p: int) -> float:
    """By how many later ones somebody of priority p is overtaken at most: a (p - 0)."""
    return math.inf if ageing is None else ageing * p
