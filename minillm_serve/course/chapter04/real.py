"""The same people through a scheduler on the real model, in real time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from minillm_serve import LLM
from minillm_serve.core import RequestMetrics, ScheduleRecord
from minillm_serve.course.chapter04.schedules import Schedule
from minillm_serve.course.replay import drive
from minillm_serve.course.trace import User


@dataclass(frozen=True)
class Served(Schedule):
    """What ran when on the real model, and what came of it.

    Attributes:
        token_ids: request id -> its answer.
        metrics: request id -> the engine's own stopwatch.
    """

    token_ids: dict[str, tuple[int, ...]]
    metrics: dict[str, RequestMetrics]

    @property
    def step_seconds(self) -> float:
        """What a step took: the one in the middle."""
        return statistics.median(ended - began for began, ended in self.record.ran())

    def mean(self, what: str) -> float:
        """Mean over requests of one of `RequestMetrics`' times (`"ttft"`, `"tpot"`), in seconds.

        Requests of a single token have no time per further token.
        """
        found = [getattr(one, what) for one in self.metrics.values()]
        return statistics.fmean(time for time in found if time is not None)


def serve(llm: LLM, users: Sequence[User]) -> Served:
    """Serves users who come over time; everybody gets exactly `output_len` tokens.

    Args:
        llm: idle.
        users: in order of arrival, seconds after now; named "1", "2", ...
    """
    engine = llm.engine
    record = engine.record = ScheduleRecord(engine.scheduler)
    metrics, ids = drive(engine, users)
    engine.record = None
    arrivals = {name: one.arrival_time for name, one in metrics.items()}
    return Served(record, arrivals, {name: tuple(t) for name, t in ids.items()}, metrics)
