"""Serves a trace in real time, and reads the scoreboard's columns off what was noted down."""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import Request, RequestMetrics, StepRecord
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


def replay(llm: LLM, users: list[User]) -> Served:
    """Serves the trace with our engine, in real time.

    A scheduler that waits for others is told when nobody else is to come.
    """
    engine, steps = llm.engine, list[StepRecord]()
    engine.on_step, began = steps.append, engine.clock()
    requests: list[RequestMetrics] = []
    waiting = deque(users)
    while waiting or engine.has_unfinished:
        now = engine.clock() - began
        while waiting and waiting[0].arrival <= now:
            name = f"user-{len(requests)}"
            requests.append(engine.add_request(_request(name, waiting.popleft(), began)))
        if not waiting:
            engine.flush()
        wakeup = engine.idle_until
        if wakeup is not None:
            arrival = began + waiting[0].arrival if waiting else math.inf
            time.sleep(max(0.0, min(wakeup, arrival) - engine.clock()))
        else:
            engine.step()
    engine.on_step = None
    return Served(
        requests,
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


def _request(name: str, user: User, began: float) -> Request:
    params = SamplingParams(temperature=0, max_tokens=user.output_len, ignore_eos=True)
    return Request(
        request_id=name,
        prompt_token_ids=user.prompt,
        params=params,
        arrival_time=began + user.arrival,
    )


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
