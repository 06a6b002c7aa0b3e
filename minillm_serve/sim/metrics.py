"""What serving is judged by, computed from when tokens came. All times in seconds.

TTFT = t_1 - arrival                    time to first token: the empty screen
ITL  = t_(i+1) - t_i                    inter-token latency: one gap
TPOT = (t_n - t_1) / (n - 1)            time per output token: the mean gap
E2E  = t_n - arrival = TTFT + (n - 1) * TPOT

throughput = all tokens / makespan      makespan: first arrival to last token
goodput    = requests that met every objective / makespan   (DistServe, Zhong et al., 2024)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, slots=True)
class TokenLog:
    """When the tokens of one request came.

    Attributes:
        arrival: when the request came.
        times: when each token came, ascending, [n], at least one.
    """

    arrival: float
    times: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for no tokens, or times that run backwards."""
        if not self.times:
            raise ValueError("TokenLog.times is empty: a request without a token has no latency")
        moments = (self.arrival, *self.times)
        if not all(a <= b for a, b in pairwise(moments)):
            raise ValueError(f"times must ascend from arrival={self.arrival!r}: {self.times!r}")

    @property
    def ttft(self) -> float:
        """Time to first token, waiting in line included."""
        return self.times[0] - self.arrival

    @property
    def itl(self) -> tuple[float, ...]:
        """Gaps between tokens, [n - 1]."""
        return tuple(b - a for a, b in pairwise(self.times))

    @property
    def tpot(self) -> float | None:
        """Mean gap; None for a single token, which has none."""
        gaps = len(self.times) - 1
        return (self.times[-1] - self.times[0]) / gaps if gaps else None

    @property
    def e2e(self) -> float:
        """From arrival to the last token."""
        return self.times[-1] - self.arrival


@dataclass(frozen=True, slots=True)
class SLO:
    """Service level objectives: what a user is promised. Infinite promises nothing.

    Attributes:
        ttft: most seconds to the first token.
        tpot: most seconds per further token.
    """

    ttft: float = math.inf
    tpot: float = math.inf

    def __post_init__(self) -> None:
        """Raises ValueError for an objective that is not positive."""
        if not (self.ttft > 0 and self.tpot > 0):
            raise ValueError(f"{self}: objectives are seconds above 0")

    def met_by(self, log: TokenLog) -> bool:
        """Whether the request met both; a single token cannot miss the second."""
        return log.ttft <= self.ttft and (log.tpot is None or log.tpot <= self.tpot)


def makespan(logs: Sequence[TokenLog]) -> float:
    """Seconds from the first arrival to the last token.

    Raises:
        ValueError: no logs, or all in one moment.
    """
    if not logs:
        raise ValueError("no logs: measure at least one request")
    span = max(log.times[-1] for log in logs) - min(log.arrival for log in logs)
    if span <= 0:
        raise ValueError("all happened in one moment: no rate can be computed")
    return span


def throughput(logs: Sequence[TokenLog]) -> float:
    """Output tokens per second of the whole system."""
    return sum(len(log.times) for log in logs) / makespan(logs)


def request_rate(logs: Sequence[TokenLog]) -> float:
    """Users served per second."""
    return len(logs) / makespan(logs)


def goodput(logs: Sequence[TokenLog], slo: SLO) -> float:
    """Users served per second *as promised*: those who met every objective."""
    return sum(map(slo.met_by, logs)) / makespan(logs)


def percentile(values: Sequence[float], q: float) -> float:
    """The value that q % do not exceed, interpolated between neighbours as numpy does.

    Raises:
        ValueError: no values, or q outside 0..100.
    """
    if not len(values):
        raise ValueError("no values: a percentile needs at least one")
    if not 0 <= q <= 100:
        raise ValueError(f"q is {q!r}: give a percentage from 0 to 100")
    return float(np.percentile(values, q))
