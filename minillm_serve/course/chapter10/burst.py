"""A rush: four tenants share a server, and one of them sends ten times as much for a while.

Whoever is refused comes again when told to, a few times. Everything is simulated (the real
scheduler and the real door over a stopwatch), so it is the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from minillm_serve.core import AdmissionPolicy, Overloaded, RequestRefused
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel
from minillm_serve.sim.outcome import Outcome
from minillm_serve.sim.presets import HARDWARE, MODELS
from minillm_serve.sim.simulation import Simulation

#: Seconds until the first token that are promised.
PATIENCE = 2.0
TENANTS = ("ann", "bob", "cem", "dee")
#: Who sends ten times as much, and when, in seconds.
LOUD, BURST = "dee", (6.0, 16.0)
SECONDS, TRIES = 24.0, 4
#: Who sends no more than ever.
QUIET = tuple(name for name in TENANTS if name != LOUD)
#: Seconds after which somebody who has been refused does not come again.
GIVE_UP = 15.0
#: Requests a second of each tenant, as a rule.
RATE = 1.0
SEATS, BLOCKS, BUDGET = 10, 2_600, 1024
HARD, MODEL = "A100 40GB", "Llama-3-8B"

MakeDoor = Callable[..., AdmissionPolicy]


@dataclass(frozen=True, slots=True)
class Rush:
    """Requests in order of time, and whose they are.

    Attributes:
        arrivals: their `user` is their number.
        tenants: by that number.
    """

    arrivals: tuple[Arrival, ...]
    tenants: tuple[str, ...]

    def tenant(self, arrival: Arrival) -> str:
        """Who sent it."""
        return self.tenants[arrival.user]


@lru_cache(maxsize=16)
def rush(seed: str = "0", times: float = 10.0, rate: float = RATE) -> Rush:
    """Draws a rush.

    Args:
        seed: of the draws.
        times: how much more the loud one sends during the burst.
        rate: requests a second of each tenant.
    """
    draw, coming = random.Random(f"rush/{seed}"), list[tuple[float, str]]()
    for name in TENANTS:
        now = draw.expovariate(rate)
        while now < SECONDS:
            coming.append((now, name))
            loud = name == LOUD and BURST[0] <= now < BURST[1]
            now += draw.expovariate(rate * (times if loud else 1.0))
    coming.sort()
    arrivals = [
        # Most prompts are short, some are documents.
        Arrival(when, draw.choice((64, 128, 256, 256, 2048)), draw.randrange(40, 160), number)
        for number, (when, _) in enumerate(coming)
    ]
    return Rush(tuple(arrivals), tuple(name for _, name in coming))


@dataclass(frozen=True, slots=True)
class Rushed:
    """What became of a rush.

    Attributes:
        rush: it.
        outcome: the engine's.
        tries: how often each request knocked [n].
        ttft: seconds from the knock that was answered to the first token [n]; NaN if none was.
    """

    rush: Rush
    outcome: Outcome
    tries: NDArray[np.int64]
    ttft: NDArray[np.float64]

    @property
    def in_time(self) -> NDArray[np.bool_]:
        """Who had a first token within `PATIENCE` [n]."""
        return np.nan_to_num(self.ttft, nan=np.inf) <= PATIENCE

    @property
    def goodput(self) -> float:
        """Requests a second that were served in time."""
        return float(self.in_time.sum()) / SECONDS

    def share(self, *names: str) -> float:
        """Share of these tenants' requests that were served in time."""
        theirs = np.array([tenant in names for tenant in self.rush.tenants])
        return float(self.in_time[theirs].mean())

    @property
    def quiet_share(self) -> float:
        """The least share of those who sent no more than ever: it measures fairness."""
        return min(self.share(name) for name in QUIET)


def serve(
    door: MakeDoor, crowd: Rush, *, seats: int = SEATS, tries: int = TRIES, **more: object
) -> Rushed:
    """Serves a rush behind a door.

    Args:
        door: built with max_model_len, pool_tokens and vocab_size.
        crowd: who comes.
        seats: sequences that run at once.
        tries: how often a request that is refused knocks in all.
        more: of `Simulation`.
    """
    knocks = np.ones(len(crowd.arrivals), dtype=np.int64)

    def again(arrival: Arrival, why: RequestRefused) -> Arrival | None:
        pause = why.retry_after if isinstance(why, Overloaded) else None
        came, now = crowd.arrivals[arrival.user].time, simulation.clock.now
        if pause is None or knocks[arrival.user] >= tries or now + pause > came + GIVE_UP:
            return None
        knocks[arrival.user] += 1
        return replace(arrival, time=now + pause)

    simulation = Simulation(
        CostModel(HARDWARE[HARD], MODELS[MODEL]),
        num_blocks=BLOCKS,
        max_num_seqs=seats,
        max_num_batched_tokens=BUDGET,
        max_model_len=4096,
        admission=door,
        tenant=crowd.tenant,
        **more,  # type: ignore[arg-type]
    )
    outcome = simulation.run(crowd.arrivals, refused=again)
    ttft = np.full(len(crowd.arrivals), np.nan)
    ttft[outcome.users] = outcome.ttft
    return Rushed(crowd, outcome, knocks, ttft)


def waits(rushed: Rushed, names: Sequence[str] = TENANTS) -> tuple[NDArray[np.float64], ...]:
    """When each request of some tenants first came, and its TTFT; the unserved are NaN."""
    chosen = [number for number, name in enumerate(rushed.rush.tenants) if name in names]
    when = np.array([rushed.rush.arrivals[number].time for number in chosen])
    return when, rushed.ttft[chosen]
