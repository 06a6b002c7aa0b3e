"""A rush behind the learner's door.

The door is asked in the learner's process, and only its verdicts come back. The rush is then served
once more, here, by a door that says these verdicts: what became of it is seen, not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from minillm_serve.core import Load, Request, Verdict
from minillm_serve.course.chapter10 import burst
from minillm_serve.course.exercises.answers_ex10 import (
    PATIENCE,
    Door,
    Said,
    as_said,
    as_verdict,
)
from minillm_serve.course.exercises.exercise import Case, CheckFailed

#: Of the reference's goodput; of what each quiet tenant sends; of the reference on a quiet day.
ENOUGH, FAIR, QUIET = 0.85, 0.88, 0.97


def _crowd(case: Case) -> burst.Rush:
    return burst.rush(case["seed"], case["times"])


def run_rush(answer: Any, case: Case) -> list[Said]:
    """The learner's side: all verdicts, in order."""
    said: list[Said] = []

    class Noted(answer):
        def admit(self, request: Request, load: Load) -> Verdict:
            verdict: Verdict = super().admit(request, load)
            said.append(as_said(verdict))
            return verdict

    burst.serve(Noted, _crowd(case))
    return said


class _Parrot(Door):
    """Says what was said before, whatever happens."""

    said: Iterator[Said] = iter(())

    def admit(self, request: Request, load: Load) -> Verdict:
        for said in self.said:
            return as_verdict(said)
        raise CheckFailed("there is not one verdict for each who knocked")


def replayed(case: Case, said: list[Said]) -> burst.Rushed:
    """What becomes of a rush with these verdicts.

    Raises:
        CheckFailed: they are not those of this rush.
    """
    left = iter(said)

    class Parrot(_Parrot):
        pass

    Parrot.said = left
    rushed = burst.serve(Parrot, _crowd(case))
    if next(left, None) is not None:
        raise CheckFailed("there is not one verdict for each who knocked")
    return rushed


@lru_cache(maxsize=16)
def _reference(seed: str, times: float) -> burst.Rushed:
    return burst.serve(Door, burst.rush(seed, times))


def _told(rushed: burst.Rushed) -> str:
    late = int((np.nan_to_num(rushed.ttft, nan=0.0) > PATIENCE).sum())
    return (
        f"{int(rushed.in_time.sum())} of {len(rushed.ttft)} were served in time, {late} too late, "
        f"{int(np.isnan(rushed.ttft).sum())} not at all; the longest wait was "
        f"{float(np.nanmax(rushed.ttft)):.1f} s"
    )


def judge_goodput(case: Case, got: Any) -> None:
    """Whether nearly as many are served in time as by the reference.

    Raises:
        CheckFailed: naming what the door does.
    """
    rushed, best = replayed(case, got), _reference(case["seed"], case["times"])
    words = {word for word, _ in got}
    if rushed.goodput >= ENOUGH * best.goodput:
        return
    if "refuse" not in words:
        why = "it refuses nobody: the line grows until everybody in it is late"
    elif any(word == "refuse" and seconds < 0.5 for word, seconds in got):
        why = "who is refused comes again at once, in vain, and then gives up"
    elif rushed.outcome.num_refused > 1.2 * best.outcome.num_refused:
        why = "it refuses more than it must"
    else:
        why = "it lets in more than can begin in time"
    raise CheckFailed(
        f"{why}. {_told(rushed)}",
        expected=f"at least {ENOUGH * best.goodput:.2f} requests a second in time",
        got=f"{rushed.goodput:.2f}",
    )


def judge_fairness(case: Case, got: Any) -> None:
    """Whether those who send no more than ever are served as ever.

    Raises:
        CheckFailed: naming who is not.
    """
    rushed = replayed(case, got)
    shares = {name: rushed.share(name) for name in burst.TENANTS if name != burst.LOUD}
    worst = min(shares, key=lambda name: shares[name])
    if shares[worst] < FAIR:
        raise CheckFailed(
            f"{burst.LOUD} sends {case['times']:g} times as much, and {worst}, who sends no more "
            f"than ever, pays for it. {_told(rushed)}",
            expected=f"at least {FAIR:.0%} of {worst}'s requests in time",
            got=f"{shares[worst]:.0%}",
        )


def judge_quiet_day(case: Case, got: Any) -> None:
    """Whether a door is not noticed while there is room for all.

    Raises:
        CheckFailed: somebody was sent away.
    """
    rushed, best = replayed(case, got), _reference(case["seed"], case["times"])
    if rushed.goodput < QUIET * best.goodput:
        raise CheckFailed(
            "nobody sends much, and a door should not be noticed while there is room for all. "
            f"{_told(rushed)}",
            expected=f"at least {int(QUIET * best.in_time.sum())} served in time",
            got=int(rushed.in_time.sum()),
        )
