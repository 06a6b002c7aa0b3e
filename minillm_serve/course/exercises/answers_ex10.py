"""What ex10 should give: a wait and a door's verdicts, and what is told of wrong ones."""

from __future__ import annotations

from typing import Any

from minillm_serve.core import (
    Accept,
    Admission,
    Load,
    Queue,
    Refuse,
    Request,
    SamplingParams,
    Verdict,
    asked_tokens,
)
from minillm_serve.course.chapter10 import burst
from minillm_serve.course.exercises.books_ex10 import Inside
from minillm_serve.course.exercises.exercise import Case, CheckFailed

PATIENCE = burst.PATIENCE
SIZES: dict[str, Any] = {"max_model_len": 4096, "pool_tokens": 40_000, "vocab_size": 100}
#: Verdicts as plain data: a word and its seconds.
Said = tuple[str, float]


def waits(case: Case) -> float:
    """Seconds until a newcomer's turn."""
    load = Load(now=0.0, **case)
    if load.has_seats or not load.tokens_per_second:
        return 0.0
    return load.waiting_tokens / load.tokens_per_second


def run_waits(answer: Any, case: Case) -> Any:
    """The learner's side."""
    return answer(Load(now=0.0, **case))


def waits_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """Names the thought behind a wrong wait."""
    load = Load(now=0.0, **case)
    rate = load.tokens_per_second or 1.0
    if not isinstance(got, int | float) or isinstance(got, bool):
        return "a wait is a number of seconds"
    if expected == 0:
        return (
            "a seat is free: whoever comes now begins in the next step, whatever waits"
            if load.has_seats
            else "nobody knows yet how fast the engine is: then the wait counts as 0"
        )
    if got in (load.num_waiting / rate, load.num_waiting):
        return (
            f"the {load.num_waiting} who wait are counted, and not what they bring: a document is "
            "as long as thirty questions"
        )
    if got == load.waiting_tokens * rate:
        return "tokens times tokens a second are no seconds"
    return None


class Door:
    """The reference."""

    def __init__(self, *, max_model_len: int, pool_tokens: int, vocab_size: int) -> None:
        self._ours = Admission(
            max_model_len=max_model_len, pool_tokens=pool_tokens, vocab_size=vocab_size
        )
        self.max_len, self.inside = self._ours.max_len, Inside()

    def check(self, request: Request) -> None:
        """See `AdmissionPolicy`."""
        self._ours.check(request)

    def admit(self, request: Request, load: Load) -> Verdict:
        """See `AdmissionPolicy`."""
        tenant = request.cache_salt or ""
        tokens = asked_tokens(request, load.max_len)
        verdict = self._decide(tenant, tokens, load)
        if not isinstance(verdict, Refuse):
            self.inside.enter(request.request_id, tenant, tokens)
        return verdict

    def _decide(self, tenant: str, tokens: int, load: Load) -> Verdict:
        if load.has_seats:
            return Accept()
        wait = load.estimated_wait
        if wait > PATIENCE:
            return Refuse(max(1.0, wait), "it would take too long")
        greedy = self.inside.held(tenant) + tokens > self.inside.equal_share(tenant, tokens)
        if wait > PATIENCE / 2 and greedy:
            return Refuse(max(1.0, wait), "others have less")
        return Queue(PATIENCE)

    def leave(self, request_id: str) -> None:
        """See `AdmissionPolicy`."""
        self.inside.leave(request_id)


def knock(answer: Any, case: Case) -> list[Said]:
    """A door's verdicts in a script; both sides run it."""
    door, said = answer(**SIZES), list[Said]()
    for step in case["steps"]:
        if "leave" in step:
            door.leave(step["leave"])
            continue
        load = Load(now=100.0, max_len=SIZES["max_model_len"], **step["load"])
        said.append(as_said(door.admit(asked(step), load)))
    return said


def asked(step: dict[str, Any]) -> Request:
    """The request of one step."""
    return Request(
        request_id=step["knock"],
        prompt_token_ids=(1,) * step["prompt"],
        params=SamplingParams(max_tokens=step["answer"]),
        cache_salt=step["tenant"],
    )


def as_said(verdict: Any) -> Said:
    """A verdict as plain data."""
    match verdict:
        case Accept():
            return "accept", 0.0
        case Queue(at_most):
            return "queue", float(at_most)
        case Refuse(retry_after):
            return "refuse", float(retry_after)
    raise TypeError(f"admit returned {verdict!r}: give Accept(), Queue(...) or Refuse(...)")


def as_verdict(said: Said) -> Verdict:
    """Plain data as a verdict.

    Raises:
        CheckFailed: it is none.
    """
    try:
        word, seconds = said
        if word == "accept":
            return Accept()
        return {"queue": Queue, "refuse": Refuse}[word](seconds)
    except (KeyError, TypeError, ValueError):
        raise CheckFailed("that is no verdict", got=said) from None


def judge_said(word: str, got: Said, load: Load) -> None:
    """One verdict, beside the reference's word for it.

    Raises:
        CheckFailed: naming the mistake.
    """
    found, wait = as_verdict(got), load.estimated_wait
    moment = (
        f"{load.num_running} of {load.max_num_seqs} seats taken, {load.num_waiting} wait with "
        f"{load.waiting_tokens} tokens, {load.tokens_per_second:g} tokens a second"
    )
    if got[0] != word:
        raise CheckFailed(_wrong_word(word, load, wait) + f" ({moment})", expected=word, got=got[0])
    if isinstance(found, Refuse):
        judge_pause(found.retry_after, wait)
    if isinstance(found, Queue) and not 0 < found.at_most <= PATIENCE:
        raise CheckFailed(
            f"the promise is {PATIENCE:g} s: whoever has not begun by then should not be served "
            "before somebody who still can be in time",
            expected=f"Queue(at_most={PATIENCE:g})",
            got=f"Queue(at_most={found.at_most:g})",
        )


def _wrong_word(word: str, load: Load, wait: float) -> str:
    if word == "accept":
        if not load.num_running:
            return "the engine is idle, and it refuses, or has somebody wait"
        return "a seat is free: nobody waits for it, and nobody loses by it"
    if word == "queue":
        return f"the wait is {wait:.2g} s, and that is still in time"
    if wait > PATIENCE:
        few = " Few wait, but what they bring is long." if load.num_waiting < 5 else ""
        return f"the wait is {wait:.2g} s, and {PATIENCE:g} s are promised.{few}"
    return (
        "the queue is more than half full, and this tenant holds more than an equal share of what "
        "is inside"
    )


def judge_pause(pause: float, wait: float) -> None:
    """When somebody may come again.

    Raises:
        CheckFailed: at once, or when nobody remembers.
    """
    if pause < 0.5:
        raise CheckFailed(
            f"it says: come again in {pause:g} s. Whoever is refused then knocks again at once, "
            "and again: a storm, made by the door itself",
            got=f"Refuse({pause:g})",
        )
    if pause > 4 * max(1.0, wait):
        raise CheckFailed(
            f"it says: come again in {pause:g} s, though everybody who waits now has begun in "
            f"{wait:.2g} s: by then the customer has gone elsewhere",
            got=f"Refuse({pause:g})",
        )


def judge_knocks(case: Case, got: Any) -> None:
    """Compares a script's verdicts with the reference's, one by one."""
    knocks = [step for step in case["steps"] if "knock" in step]
    expected = knock(Door, case)
    if not isinstance(got, list) or len(got) != len(expected):
        raise CheckFailed("there is not one verdict for each who knocked", got=got)
    for step, (word, _), said in zip(knocks, expected, got, strict=True):
        load = Load(now=100.0, max_len=SIZES["max_model_len"], **step["load"])
        try:
            judge_said(word, said, load)
        except CheckFailed as failure:
            failure.message = f"{step['knock']} of {step['tenant']}: {failure.message}"
            failure.args = (failure.message,)
            raise
