"""Requests that an engine can serve, and such as it cannot."""

from __future__ import annotations

import random
from typing import Any

from minillm_serve.core import Admission, Request, RequestRefused
from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.parts import Part

SEED = 0
LIMITS = {"max_model_len": 512, "pool_tokens": 256, "vocab_size": 100}


class OpenDoor:
    """Lets everybody in."""

    def __init__(self, *, max_model_len: int, pool_tokens: int, vocab_size: int) -> None:
        self.max_len = min(max_model_len, pool_tokens)

    def check(self, request: Request) -> None:
        """See `AdmissionPolicy`."""


def trial(yours: Any) -> Trial:
    """Prompts of every length, some with unknown ids."""
    return Trial(
        trace=f"{len(_requests())} requests (seed {SEED})",
        naive=OpenDoor,
        naive_is="lets everybody in",
        reference=Admission,
        measures=(
            Measure("let in", "="),
            Measure("harmful ones let in", "=", 0),
            Measure("servable ones refused", "=", 0),
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
    return {"let in": let_in, "harmful ones let in": harmful, "servable ones refused": refused}
