"""The ten-line server and our engine, both watched token by token.

Users are the scoreboard's (`course.trace.User`): each arrives, brings a prompt, and reads an answer
of at most so many tokens. Both servers answer greedily and stop at the end of an answer, so that
what they write can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import Request
from minillm_serve.course.trace import User
from minillm_serve.sim.metrics import TokenLog


@dataclass(frozen=True, slots=True)
class Answer:
    """What one user got, and when.

    Attributes:
        log: when each token came, in seconds after the first user arrived.
        began: when the work for this user began, on the same clock.
        token_ids: the answer.
    """

    log: TokenLog
    began: float
    token_ids: tuple[int, ...]


def one_at_a_time(
    model: Any,
    users: Sequence[User],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Answer]:
    """transformers' `generate`, first come, first served.

    Args:
        model: a causal language model of transformers.
        users: in order of arrival.
        clock: the time in seconds.
        sleep: waits so many seconds.

    Returns:
        One answer a user, in order.
    """
    import torch

    began, answers = clock(), []
    for user in users:
        sleep(max(0.0, user.arrival - (clock() - began)))
        started, watch = clock() - began, _Watch(clock)
        prompt = torch.tensor([user.prompt])
        with torch.inference_mode():
            output = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=user.output_len,
                do_sample=False,
                pad_token_id=0,
                streamer=watch,
            )
        log = TokenLog(user.arrival, tuple(moment - began for moment in watch.moments))
        answers.append(Answer(log, started, tuple(output[0, len(user.prompt) :].tolist())))
    return answers


def together(
    llm: LLM, users: Sequence[User], *, sleep: Callable[[float], None] = time.sleep
) -> list[Answer]:
    """Our engine, which serves all who are there in one batch.

    Args:
        llm: idle.
        users: in order of arrival.
        sleep: waits so many seconds.

    Returns:
        One answer a user, in order.
    """
    engine = llm.engine
    began, waiting = engine.clock(), list(enumerate(users))
    moments: dict[str, list[float]] = {}
    ids: dict[str, list[int]] = {}
    metrics = {}
    while waiting or engine.has_unfinished:
        now = engine.clock() - began
        while waiting and waiting[0][1].arrival <= now:
            index, user = waiting.pop(0)
            request = _request(f"user-{index}", user, began)
            metrics[request.request_id] = engine.add_request(request)
            moments[request.request_id], ids[request.request_id] = [], []
        if not engine.has_unfinished:
            sleep(waiting[0][1].arrival - now)
            continue
        for update in engine.step():
            came = engine.clock() - began
            moments[update.request_id] += [came] * len(update.new_token_ids)
            ids[update.request_id] += update.new_token_ids
    return [
        Answer(
            TokenLog(user.arrival, tuple(moments[name])),
            (metrics[name].first_scheduled_time or began) - began,
            tuple(ids[name]),
        )
        for name, user in zip(metrics, users, strict=True)
    ]


def _request(name: str, user: User, began: float) -> Request:
    params = SamplingParams(temperature=0, max_tokens=user.output_len)
    return Request(
        request_id=name,
        prompt_token_ids=user.prompt,
        params=params,
        arrival_time=began + user.arrival,
    )


class _Watch:
    """A transformers streamer that notes when each token came."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.moments: list[float] = []
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        if self._prompt_seen:
            self.moments.append(self._clock())
        self._prompt_seen = True  # the first call hands over the prompt

    def end(self) -> None:
        """Nothing is left to do."""
