"""Waiting lines, request by request: what `queueing`'s formulas say in the long run, played out.

Pure functions of arrays: draw arrivals and work from a seeded generator and pass them in.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """What a simulation saw, request by request; all arrays [requests], seconds.

    Attributes:
        arrival: when each came, ascending.
        start: when its service began.
        finish: when its service ended.
    """

    arrival: Floats
    start: Floats
    finish: Floats

    @property
    def wait(self) -> Floats:
        """Seconds in line, [requests]."""
        return self.start - self.arrival

    @property
    def response(self) -> Floats:
        """Seconds from arrival to end, [requests]."""
        return self.finish - self.arrival

    def waiting_at(self, times: ArrayLike) -> NDArray[np.int64]:
        """People in line at each of these moments."""
        return self._count(self.arrival, times) - self._count(self.start, times)

    def served_at(self, times: ArrayLike) -> NDArray[np.int64]:
        """People in service at each of these moments."""
        return self._count(self.start, times) - self._count(self.finish, times)

    @staticmethod
    def _count(moments: Floats, times: ArrayLike) -> NDArray[np.int64]:
        return np.searchsorted(np.sort(moments), times, side="right").astype(np.int64)


def run_slots(
    arrival: ArrayLike, work: ArrayLike, step_time: Callable[[int], float], slots: int
) -> Run:
    """First come, first served into `slots` places, each free again as soon as its work ends.

    Everybody in a place gets one unit of work a step, and a step takes `step_time(n)` seconds with
    n of them. Steps are taken as infinitely fine, which spares a loop over tokens: a million
    requests take seconds, not hours. With one slot this is the plain queue.

    Args:
        arrival: seconds, ascending, [requests].
        work: units of work (tokens, or seconds if a step takes one), above 0, [requests].
        step_time: number in service -> seconds a unit.
        slots: most served at once.

    Raises:
        ValueError: arrivals out of order, lengths that differ, work or a step that is not positive.
    """
    came, units = _checked(arrival, work, slots=slots)
    start, finish = np.empty_like(came), np.empty_like(came)
    active: list[tuple[float, int]] = []  # (progress at which it ends, request)
    clock = progress = 0.0
    waiting = arrived = 0  # first in line, first who has not come yet
    steps = {n: _positive(step_time(n), n) for n in range(1, min(slots, len(came)) + 1)}
    while active or waiting < len(came):
        step = steps.get(len(active), 1.0)
        ends = clock + (active[0][0] - progress) * step if active else math.inf
        comes = float(came[arrived]) if arrived < len(came) else math.inf
        now = min(ends, comes)
        progress += (now - clock) / step if active else 0.0
        clock = now
        if ends <= comes:
            progress, request = heapq.heappop(active)
            finish[request] = now
        else:
            arrived += 1
        while waiting < arrived and len(active) < slots:
            start[waiting] = now
            heapq.heappush(active, (progress + float(units[waiting]), waiting))
            waiting += 1
    return Run(came, start, finish)


def run_bulk(
    arrival: ArrayLike, work: ArrayLike, trip_time: Callable[[Floats], float], seats: int
) -> Run:
    """One server takes all who wait, `seats` at most, and lets all out when the trip is over.

    Args:
        arrival: seconds, ascending, [requests].
        work: units of work, above 0, [requests].
        trip_time: work of those aboard, [1..seats] -> seconds of their trip; the longest decides,
            for example `lambda w: w.max() * step_time(len(w))`.
        seats: most aboard [B].

    Raises:
        ValueError: arrivals out of order, lengths that differ, work or a trip that is not positive.
    """
    came, units = _checked(arrival, work, slots=seats)
    start, finish = np.empty_like(came), np.empty_like(came)
    clock, first = 0.0, 0
    while first < len(came):
        clock = max(clock, float(came[first]))
        last = min(first + seats, int(np.searchsorted(came, clock, side="right")))
        start[first:last] = clock
        clock += _positive(trip_time(units[first:last]), last - first)
        finish[first:last] = clock
        first = last
    return Run(came, start, finish)


def _positive(seconds: float, n: int) -> float:
    if not 0 < seconds < math.inf:
        raise ValueError(f"with {n} in service it takes {seconds!r} s: give a time above 0")
    return float(seconds)


def _checked(arrival: ArrayLike, work: ArrayLike, *, slots: int) -> tuple[Floats, Floats]:
    if slots < 1:
        raise ValueError(f"{slots} slots: give 1 or more")
    came, units = np.asarray(arrival, dtype=float), np.asarray(work, dtype=float)
    if came.ndim != 1 or came.shape != units.shape:
        raise ValueError(f"arrival {came.shape} and work {units.shape}: give one of each a request")
    if not np.isfinite(came).all() or (np.diff(came) < 0).any():
        raise ValueError("arrival must be in ascending order: sort the requests by time")
    if not (np.isfinite(units) & (units > 0)).all():
        raise ValueError("work must be above 0 for every request")
    return came, units
