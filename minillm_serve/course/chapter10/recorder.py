"""Readings of a server, one after the other, while a crowd asks."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from minillm_serve.course.chapter10.crowd import Crowd
from minillm_serve.course.chapter10.watch import Reading, Span, read

#: Points that are kept, and shown.
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Point:
    """One column of the dashboard.

    Attributes:
        at: seconds since the first reading.
        rate: questions a second that were being asked.
        span: what happened since the reading before.
    """

    at: float
    rate: float
    span: Span


class Watcher:
    """Reads a server's metrics now and then, and keeps what was seen.

    Args:
        url: the server's.
        most: points to keep.
    """

    def __init__(self, url: str, most: int = SHOWN) -> None:
        self.url = url
        self.points: deque[Point] = deque(maxlen=most)
        self._first: Reading | None = None
        self._last: Reading | None = None

    def look(self, rate: float = 0.0) -> None:
        """Reads once more.

        Raises:
            httpx.HTTPError: the server is not there.
        """
        now = read(self.url)
        if self._first is None or self._last is None:
            self._first = now
        else:
            at = now.time - self._first.time
            self.points.append(Point(at, rate, Span(self._last, now)))
        self._last = now


def record(crowd: Crowd, rates: Sequence[float], *, each: float, every: float = 0.5) -> list[Point]:
    """A run by a script: so many questions a second, one rate after the other.

    Args:
        crowd: comes, and is gone in the end.
        rates: questions a second.
        each: seconds of each.
        every: seconds between two readings.
    """
    watcher = Watcher(crowd.url, most=1000)
    watcher.look()
    with contextlib.closing(_Started(crowd)):
        for rate in rates:
            crowd.rate = rate
            until = crowd.clock() + each
            while crowd.clock() < until:
                threading.Event().wait(every)
                with contextlib.suppress(httpx.TimeoutException):
                    watcher.look(rate)
    return list(watcher.points)


class _Started:
    """Closing it stops the crowd."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        crowd.start()

    def close(self) -> None:
        self._crowd.stop()


def levels(points: Sequence[Point]) -> tuple[float, float]:
    """The two numbers of a run, each from 0 to 1: busy share in all, median KV usage."""
    seconds = sum(point.span.seconds for point in points)
    busy = sum(point.span.busy * point.span.seconds for point in points)
    used = statistics.median(point.span.kv_usage for point in points)
    return busy / seconds, used
