"""Requests that an engine can serve, and such as it cannot; then more than it can serve in time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from minillm_serve.core import Accept, Admission, Load, Request, RequestRefused, Verdict
from minillm_serve.course.chapter10 import burst
from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.parts import Part
from minillm_serve.parts.admission import fit_admission

SEED = 0
LIMITS: dict[str, Any] = {"max_model_len": 512, "pool_tokens": 256, "vocab_size": 100}


class OpenDoor:
    """Lets everybody in."""

    def __init__(self, *, max_model_len: int, pool_tokens: int, vocab_size: int) -> None:
        self.max_len = min(max_model_len, pool_tokens)

    def check(self, request: Request) -> None:
        """See `AdmissionPolicy`."""

    def admit(self, request: Request, load: Load) -> Verdict:
        """See `AdmissionPolicy`."""
        return Accept()

    def leave(self, request_id: str) -> None:
        """See `AdmissionPolicy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusesLate(Admission):
    """Ours, as in `LLM(refuse_late=True)`."""

    refuse_late: bool = True


def trial(yours: Any) -> Trial:
    """Prompts of every length, some with unknown ids; and a rush, each of whom has a deadline."""
    coming = len(burst.rush().arrivals)
    return Trial(
        trace=f"{len(_requests())} requests and a rush of {coming} (seed {SEED})",
        naive=OpenDoor,
        naive_is="lets everybody in",
        reference=RefusesLate,
        measures=(
            Measure("let in", "="),
            Measure("harmful ones let in", "=", 0),
            Measure("servable ones refused", "=", 0),
            Measure("in the rush: in time", ">=", slack=0.1, format=".0%"),
            Measure("waited in vain", "<=", slack=0.5),
        ),
        count=_count,
        work=lambda door: [_is_let_in(door(**LIMITS), request) for request in _requests()],
    )


def _requests() -> list[Request]:
    draw = random.Random(SEED)
    return [
        Request(
            request_id=str(index),
            prompt_token_ids=tuple(
                draw.randrange(-1 if index % 8 == 0 else 0, 100)
                for _ in range(draw.choice((0, 1, 40, 255, 256, 400)))
            ),
        )
        for index in range(96)
    ]


def _is_let_in(door: Any, request: Request) -> bool:
    try:
        door.check(request)
    except RequestRefused:
        return False
    return True


def _count(part: Part) -> Counters:
    ours, let_in, harmful, refused = Admission(**LIMITS), 0, 0, 0
    with part.blame("__init__"):
        door = part.value(**LIMITS)
    for request in _requests():
        with part.blame("check"):
            enters = _is_let_in(door, request)
        servable = _is_let_in(ours, request)
        let_in += enters
        harmful += enters and not servable
        refused += servable and not enters
    return {
        "let in": let_in,
        "harmful ones let in": harmful,
        "servable ones refused": refused,
        **_rush(part, harmful),
    }


def _rush(part: Part, harmful: int) -> Counters:
    """How a door stands a rush in which nobody is harmful; only a safe one is also watched."""
    with part.trial("a rush"):
        in_time, expired = _rushed(part.value, watched=not harmful)
    return {"in the rush: in time": in_time, "waited in vain": expired}


@lru_cache(maxsize=16)
def _rushed(door: Any, *, watched: bool) -> tuple[float, int]:
    """Share of those served in time, and how many were given up at their deadlines."""
    made = fit_admission(Part("admission", door)) if watched else door
    rushed = burst.serve(made, burst.rush(), max_wait=burst.PATIENCE)
    return float(rushed.in_time.mean()), rushed.outcome.num_expired
