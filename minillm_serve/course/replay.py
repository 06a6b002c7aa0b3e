"""Serves a trace in real time, and reads the scoreboard's columns off what was noted down."""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minillm_serve import LLM
from minillm_serve.core import EngineCore, RequestMetrics, StepRecord
from minillm_serve.course.trace import User


@dataclass(frozen=True, slots=True)
class Served:
    """What a replay measured.

    Attributes:
        requests: one a user.
        seconds: from the first arrival to the last token.
        steps: one record a step.
        block_size: tokens a block, for counting waste.
        slots: sequences that could have run at once.
    """

    requests: list[RequestMetrics]
    seconds: float
    steps: list[StepRecord] = field(default_factory=list)
    block_size: int = 1
    slots: int = 1


def drive(
    engine: EngineCore, users: Sequence[User]
) -> tuple[dict[str, RequestMetrics], dict[str, list[int]]]:
    """Serves users who come over time, in real time.

    `LLM.generate` knows that nobody else is coming and says so (`flush`) at each step. Here
    somebody may be, so we drive the engine ourselves: it tells until when it has nothing to do
    (`idle_until`), and is flushed when the last user is in.

    Args:
        engine: idle.
        users: in order of arrival, seconds after now; named "1", "2", ...

    Returns:
        The metrics of each request, and its tokens.
    """
    began, waiting = engine.clock(), deque(enumerate(users, 1))
    metrics: dict[str, RequestMetrics] = {}
    ids: dict[str, list[int]] = {str(number): [] for number, _ in waiting}
    while waiting or engine.has_unfinished:
        while waiting and began + waiting[0][1].arrival <= engine.clock():
            number, user = waiting.popleft()
            metrics[str(number)] = engine.add_request(user.request(str(number), began))
        if not waiting:
            engine.flush()
        until = engine.idle_until
        if until is not None and until > engine.clock():
            arrival = began + waiting[0][1].arrival if waiting else math.inf
            time.sleep(max(0.0, min(until, arrival) - engine.clock()))
            continue
        for update in engine.step():
            ids[update.request_id] += update.new_token_ids
    return metrics, ids


def replay(llm: LLM, users: list[User]) -> Served:
    """Serves the trace with our engine, in real time."""
    engine, steps = llm.engine, list[StepRecord]()
    engine.on_step, began = steps.append, engine.clock()
    metrics, _ = drive(engine, users)
    engine.on_step = None
    return Served(
        list(metrics.values()),
        engine.clock() - began,
        steps,
        block_size=llm.kv_cache.block_size,
        slots=engine.scheduler.max_num_seqs,
    )


def replay_one_at_a_time(model: Any, users: list[User]) -> Served:
    """Serves the trace as the ten-line server does: transformers' `generate`, one by one."""
    import torch

    began, requests = time.monotonic(), []
    for user in users:
        time.sleep(max(0.0, user.arrival - (time.monotonic() - began)))
        metrics = RequestMetrics(arrival_time=began + user.arrival)
        watch = _TokenClock()
        with torch.inference_mode():
            model.generate(
                torch.tensor([user.prompt]),
                attention_mask=torch.ones(1, len(user.prompt), dtype=torch.long),
                max_new_tokens=user.output_len,
                min_new_tokens=user.output_len,
                do_sample=False,
                pad_token_id=0,
                streamer=watch,
            )
        metrics.first_token_time, metrics.last_token_time = watch.times[0], watch.times[-1]
        metrics.finished_time = watch.times[-1]
        metrics.num_output_tokens = len(watch.times)
        requests.append(metrics)
    return Served(requests, time.monotonic() - began)


def figures(served: Served) -> dict[str, float | None]:
    """The scoreboard's columns: times in s, shares in 0..1; None where nothing was recorded."""
    ttft = [m.ttft for m in served.requests if m.ttft is not None]
    tpot = [m.tpot for m in served.requests if m.tpot is not None]
    tokens = sum(m.num_output_tokens for m in served.requests)
    return {
        "ttft_p50_s": float(np.percentile(ttft, 50)),
        "ttft_p95_s": float(np.percentile(ttft, 95)),
        "tpot_p50_s": float(np.percentile(tpot, 50)),
        "tpot_p95_s": float(np.percentile(tpot, 95)),
        "output_tok_s": tokens / served.seconds,
        "kv_waste": kv_waste(served),
        "slot_utilisation": slot_utilisation(served),
    }


def kv_waste(served: Served) -> float | None:
    """Share of the blocks in use, over time, that held no token."""
    if not served.steps:
        return None
    held = sum((s.ended - s.began) * s.blocks_used * served.block_size for s in served.steps)
    stored = sum((s.ended - s.began) * s.tokens_stored for s in served.steps)
    return 1 - stored / held


def slot_utilisation(served: Served) -> float | None:
    """Share of the slots, over all steps, in which a sequence computed something."""
    if not served.steps:
        return None
    return sum(s.num_scheduled for s in served.steps) / (served.slots * len(served.steps))


class _TokenClock:
    """A transformers streamer that notes when each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        if self._prompt_seen:
            self.times.append(time.monotonic())
        self._prompt_seen = True  # the first call hands over the prompt

    def end(self) -> None:
        """Nothing is left to do."""
