"""What became of the requests of a simulation; seven numbers each, so that a million fit."""

from __future__ import annotations

import math
from array import array

import numpy as np
from numpy.typing import NDArray

from minillm_serve.core.metrics import RequestMetrics
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.metrics import SLO


class Outcome:
    """Requests in the order in which they ended. Times in seconds.

    Attributes:
        num_refused: requests that were not let in.
        num_expired: requests that were dropped, having waited too long to begin.
        num_preemptions: how often a sequence lost its blocks.
    """

    def __init__(self) -> None:
        self.num_refused = 0
        self.num_expired = 0
        self.num_preemptions = 0
        self._users = array("q")
        self._prompts = array("q")
        self._outputs = array("q")
        self._arrivals = array("d")
        self._starts = array("d")
        self._firsts = array("d")
        self._ends = array("d")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, arrival: Arrival, metrics: RequestMetrics) -> None:
        """Notes a request that ended."""
        self._users.append(arrival.user)
        self._prompts.append(arrival.prompt_tokens)
        self._outputs.append(metrics.num_output_tokens)
        self._arrivals.append(arrival.time)
        self._starts.append(_or_nan(metrics.first_scheduled_time))
        self._firsts.append(_or_nan(metrics.first_token_time))
        self._ends.append(_or_nan(metrics.finished_time))
        self.num_preemptions += metrics.num_preemptions

    @property
    def users(self) -> NDArray[np.int64]:
        """Whose they were [n]."""
        return np.array(self._users)

    @property
    def prompt_tokens(self) -> NDArray[np.int64]:
        """Tokens that they brought [n]."""
        return np.array(self._prompts)

    @property
    def output_tokens(self) -> NDArray[np.int64]:
        """Tokens that they got [n]."""
        return np.array(self._outputs)

    @property
    def arrivals(self) -> NDArray[np.float64]:
        """When they came [n]."""
        return np.array(self._arrivals)

    @property
    def ends(self) -> NDArray[np.float64]:
        """When they got their last token [n]."""
        return np.array(self._ends)

    @property
    def waiting(self) -> NDArray[np.float64]:
        """From arrival to the first step that computed a token of theirs [n]."""
        return np.array(self._starts) - self.arrivals

    @property
    def ttft(self) -> NDArray[np.float64]:
        """From arrival to the first token [n]."""
        return np.array(self._firsts) - self.arrivals

    @property
    def tpot(self) -> NDArray[np.float64]:
        """Mean gap between tokens [n]; NaN for a single token."""
        gaps = np.maximum(self.output_tokens - 1, 0)
        spans = self.ends - np.array(self._firsts)
        return np.divide(spans, gaps, out=np.full(len(self), math.nan), where=gaps > 0)

    @property
    def latency(self) -> NDArray[np.float64]:
        """From arrival to the last token [n]."""
        return self.ends - self.arrivals

    @property
    def makespan(self) -> float:
        """From the first arrival to the last token; 0 if nobody was served."""
        return float(self.ends.max() - self.arrivals.min()) if len(self) else 0.0

    @property
    def throughput(self) -> float:
        """Output tokens a second."""
        return float(self.output_tokens.sum()) / self.makespan if self.makespan else 0.0

    def goodput(self, slo: SLO) -> float:
        """Requests a second that met every objective; a single token cannot miss the second."""
        if not self.makespan:
            return 0.0
        tpot = self.tpot
        met = (self.ttft <= slo.ttft) & (np.isnan(tpot) | (tpot <= slo.tpot))
        return float(met.sum()) / self.makespan


def _or_nan(time: float | None) -> float:
    return math.nan if time is None else time
