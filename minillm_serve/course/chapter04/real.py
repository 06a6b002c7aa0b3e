"""The same people through a scheduler on the real model, in real time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import Request, RequestMetrics, ScheduleRecord
from minillm_serve.course.chapter04.schedules import Schedule
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


def serve(
    llm: LLM,
    users: Sequence[User],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Served:
    """Serves users who come over time; everybody gets exactly `output_len` tokens.

    `LLM.generate` knows that nobody else is coming and says so (`flush`) at each step. Here
    somebody may be, so we drive the engine ourselves: it tells until when it has nothing to do
    (`idle_until`), and is flushed when the last user is in and only a half-full batch is left.

    Args:
        llm: idle.
        users: in order of arrival, seconds after now; named "1", "2", ...
        sleep: waits so many seconds.
    """
    engine = llm.engine
    record = engine.record = ScheduleRecord(engine.scheduler)
    began, waiting = engine.clock(), list(enumerate(users, 1))
    metrics: dict[str, RequestMetrics] = {}
    ids: dict[str, list[int]] = {str(number): [] for number, _ in waiting}
    while waiting or engine.has_unfinished:
        while waiting and began + waiting[0][1].arrival <= engine.clock():
            number, user = waiting.pop(0)
            metrics[str(number)] = engine.add_request(request(str(number), user, began))
        if (until := engine.idle_until) is not None:
            _pause(llm, until, began + waiting[0][1].arrival if waiting else None, sleep)
        for update in engine.step():
            ids[update.request_id] += update.new_token_ids
    engine.record = None
    arrivals = {name: one.arrival_time for name, one in metrics.items()}
    return Served(record, arrivals, {name: tuple(t) for name, t in ids.items()}, metrics)


def request(name: str, user: User, began: float) -> Request:
    """A user's request, greedy, for exactly `output_len` tokens."""
    params = SamplingParams(temperature=0, max_tokens=user.output_len, ignore_eos=True)
    return Request(
        request_id=name,
        prompt_token_ids=user.prompt,
        params=params,
        arrival_time=began + user.arrival,
    )


def _pause(
    llm: LLM, until: float, next_arrival: float | None, sleep: Callable[[float], None]
) -> None:
    """Waits until there is something to do; with nobody still to come, says so instead."""
    if next_arrival is not None:
        sleep(max(0.0, min(until, next_arrival) - llm.engine.clock()))
    elif llm.engine.has_unfinished:
        llm.engine.flush()
