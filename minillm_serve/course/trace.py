"""The scoreboard's trace: the same users, at the same moments, for every technique of the course.

A row is one way of serving that trace within one and the same KV memory.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import Request, RequestMetrics, StepRecord

SEED = 0
#: What every row may spend on KV, in tokens, and the longest conversation that is promised.
KV_TOKENS, MAX_MODEL_LEN = 2048, 512


@dataclass(frozen=True, slots=True)
class User:
    """Arrives, brings a prompt, reads an answer of a known length."""

    arrival: float  # seconds after the trace begins
    prompt: tuple[int, ...]
    output_len: int


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


def make_trace(*, short: bool = False) -> list[User]:
    """Users in order of arrival: most say little, some a lot; they come faster than one by one.

    Prompts of 16 to 160 random ids, answers of 8 to 128 tokens, the long ones rarer, and gaps
    that are exponential with a mean of 0.25 s (a Poisson process of 4 users/s).
    """
    draw = random.Random(SEED)
    users, clock = [], 0.0
    for _ in range(8 if short else 40):
        prompt_len = int(16 * 10 ** draw.random())
        output_len = int(8 * 16 ** draw.random())
        prompt = tuple(draw.randint(1_000, 40_000) for _ in range(prompt_len))
        users.append(User(clock, prompt, min(output_len, 32) if short else output_len))
        clock += draw.expovariate(4.0)
    return users


def describe_trace(users: list[User]) -> str:
    """One line that says what the trace is."""
    prompts, outputs = (
        sum(len(user.prompt) for user in users),
        sum(user.output_len for user in users),
    )
    return (
        f"{len(users)} users within {users[-1].arrival:.0f} s, {prompts} prompt tokens, "
        f"{outputs} output tokens, {KV_TOKENS} tokens of KV, seed {SEED}"
    )


def replay(llm: LLM, users: list[User]) -> Served:
    """Serves the trace with our engine, in real time."""
    engine, steps = llm.engine, list[StepRecord]()
    engine.on_step, began = steps.append, engine.clock()
    requests: list[RequestMetrics] = []
    waiting = list(users)
    while waiting or engine.has_unfinished:
        now = engine.clock() - began
        while waiting and waiting[0].arrival <= now:
            user = waiting.pop(0)
            name = f"user-{len(requests)}"
            requests.append(engine.add_request(_request(name, user, began)))
        if engine.has_unfinished:
            engine.step()
        else:
            time.sleep(max(0.0, waiting[0].arrival - now))
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


def _row_00(users: list[User]) -> Served:
    import torch
    from transformers import AutoModelForCausalLM

    from minillm_serve.models.resolve import resolve_model

    path = resolve_model("smollm2-135m")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    warm_up = User(0.0, users[0].prompt, 2)
    replay_one_at_a_time(model, [warm_up])
    return replay_one_at_a_time(model, users)


def _row_01(users: list[User]) -> Served:
    # One block is a whole conversation of the greatest length: nothing is paged yet.
    llm = LLM(
        max_model_len=MAX_MODEL_LEN,
        block_size=MAX_MODEL_LEN,
        num_blocks=KV_TOKENS // MAX_MODEL_LEN,
        max_num_seqs=KV_TOKENS // MAX_MODEL_LEN,
    )
    replay(llm, [User(0.0, users[0].prompt, 2)])
    return replay(llm, users)


def _row_02(users: list[User]) -> Served:
    # The same KV memory in blocks; room for the whole crowd, so that memory alone is the limit.
    llm = LLM(
        max_model_len=MAX_MODEL_LEN,
        block_size=16,
        num_blocks=KV_TOKENS // 16,
        max_num_seqs=32,
    )
    replay(llm, [User(0.0, users[0].prompt, 2)])
    return replay(llm, users)


@dataclass(frozen=True, slots=True)
class Technique:
    """A row before it is measured."""

    chapter: int
    title: str
    serve: Callable[[list[User]], Served]
    note: str


TECHNIQUES = {
    "00_one_at_a_time": Technique(
        0,
        "one request at a time (transformers)",
        _row_00,
        "Everybody waits for all who came before; the KV cache is thrown away after each.",
    ),
    "01_reserve": Technique(
        1,
        "reserve the longest conversation",
        _row_01,
        "The KV memory divided by the longest conversation says how many run at once; "
        "most of what each reserves stays empty.",
    ),
    "02_paged": Technique(
        2,
        "paged: blocks of 16 by need",
        _row_02,
        "The same memory holds several times as many people, so nobody waits long to begin. They "
        "share every step, so each of their tokens takes longer; and the batch now has more places "
        "(32 instead of 4) than people come.",
    ),
}


def run_row(name: str, *, short: bool = False) -> dict[str, Any]:
    """Serves the trace by one technique, here and now.

    Args:
        name: a key of `TECHNIQUES`.
        short: a shorter trace, for a notebook cell; not comparable with the committed rows.

    Returns:
        A row of the scoreboard.

    Raises:
        ValueError: there is no such technique.
    """
    if name not in TECHNIQUES:
        raise ValueError(f"no technique {name!r}: choose from {', '.join(TECHNIQUES)}")
    technique = TECHNIQUES[name]
    served = technique.serve(make_trace(short=short))
    title = f"{technique.title} (short trace)" if short else technique.title
    row = {"id": name, "chapter": technique.chapter, "technique": title}
    return {**row, **figures(served), "note": technique.note}


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
