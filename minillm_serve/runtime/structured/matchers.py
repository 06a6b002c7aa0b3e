"""What may come next in each answer that has to follow a grammar."""

import time
import weakref
from collections.abc import Mapping
from collections.abc import Sequence as Items
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minillm_serve.core.batch import ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.runtime.structured.grammar import Grammar
from minillm_serve.runtime.structured.worker import Worker

#: Seconds that finding what may come next may take an answer in all, and more for each token of it.
#: (It takes a tenth of a millisecond for most grammars and seconds for a few, such as
#: "(([a-z]+){1,50} ?){1,50}"; everybody in the batch would have to wait for those.)
ALLOWANCE = 2.0
ALLOWANCE_PER_TOKEN = 0.02
#: How many times that a step may take, whoever is in it; and how much of it is too little for a
#: verdict on a grammar.
STEP, TOO_LITTLE = 2.0, 1 / 8

#: Why there is no mask; keys of `sampler.FAULTS`.
DEAD_END, TOO_SLOW = -3, -4

Job = Future[np.ndarray | int | None]


class Guided(NamedTuple):
    """A choice in which a grammar has a say, as it stands when its step is submitted.

    Attributes:
        row: which of the step's choices.
        sequence: whose.
        output_ids: its generated ids that are known.
        has_pending: the token just before the choice is none of them; only the device has it.
    """

    row: int
    sequence: Sequence
    output_ids: tuple[int, ...]
    has_pending: bool

    @classmethod
    def all_of(cls, sampled: Items[ScheduledSequence], rows: Items[int]) -> "list[Guided]":
        """Those among slices that sample; their choices are at these rows."""
        return [
            cls(row, sequence, tuple(sequence.output_token_ids), sequence.num_pending > 0)
            for sequence, row in zip((item.sequence for item in sampled), rows, strict=False)
            if sequence.request.grammar is not None
        ]


@dataclass(slots=True)
class _Followed:
    """How far a matcher has got in its sequence.

    Attributes:
        matcher: xgrammar's.
        num_taken: ids of the sequence's output that it has taken in.
        seconds: that it has used up.
    """

    matcher: Any
    num_taken: int = 0
    seconds: float = 0.0


class Matchers:
    """One matcher for each sequence that has a grammar, as long as the sequence lives.

    A matcher is a memory of the sequence's output and nothing else: it takes in what has been
    added. So it does not matter whether a sequence was preempted meanwhile, or which steps failed.

    Nothing of it can be broken off. What takes too long is left behind in its thread, and a new one
    goes on with the others.

    Args:
        allowance: see `ALLOWANCE`.
    """

    def __init__(self, allowance: float = ALLOWANCE) -> None:
        self._allowance = allowance
        self._followed: weakref.WeakKeyDictionary[Sequence, _Followed] = weakref.WeakKeyDictionary()
        self._worker = Worker()

    def masks(self, guided: Items[Guided], last: Items[int]) -> list[np.ndarray | int | None]:
        """What may come next at each of some choices.

        Args:
            guided: the choices.
            last: the token before each choice of the step, by row.

        Returns:
            For each of `guided`: [W] int32, a bit for each id; or `DEAD_END`; or `TOO_SLOW` if it
            was not there in time; or None if the answer has ended already, and nothing will come of
            the choice.
        """
        end = time.monotonic() + STEP * self._allowance
        # Whoever has used up most comes last: who is quick does not wait for who is slow.
        order = sorted(guided, key=lambda item: self._follow(item).seconds)
        jobs = {item.row: self._begin(item, last[item.row]) for item in order}
        masks: dict[int, np.ndarray | int | None] = dict.fromkeys(jobs, TOO_SLOW)
        for item in order:
            left = end - time.monotonic()
            # Half of what is left at most, so that there is always some for the others.
            patience = min(max(self._seconds_left(item), self._too_little), left / 2)
            try:
                masks[item.row] = jobs[item.row].result(max(0.0, patience))
            except TimeoutError:
                if not self._leave(item, jobs, left):
                    break
        return [masks[item.row] for item in guided]

    def _begin(self, item: Guided, last: int) -> Job:
        ids = (*item.output_ids, last) if item.has_pending else item.output_ids
        is_over = self._seconds_left(item) < 0
        work = partial(_mask, self._follow(item), _grammar(item), ids, item.has_pending, is_over)
        return self._worker.submit(work)

    def _leave(self, item: Guided, jobs: Mapping[int, Job], left: float) -> bool:
        """Goes on without somebody; tells whether there is time and room for the others."""
        grammar, job = _grammar(item), jobs[item.row]
        goes_on = left >= self._too_little
        if not job.cancel():
            grammar.given_up.leave(job)
            if goes_on:
                grammar.give_up()
        goes_on = goes_on and not grammar.given_up.is_crowded
        if not goes_on:
            # Before there is a new thread: it would begin with one of them.
            for other in jobs.values():
                other.cancel()
        self._worker.leave()
        return goes_on

    def _follow(self, item: Guided) -> _Followed:
        followed = self._followed.get(item.sequence)
        if followed is None:
            followed = self._followed[item.sequence] = _Followed(_grammar(item).matcher())
        return followed

    def _seconds_left(self, item: Guided) -> float:
        allowed = self._allowance + ALLOWANCE_PER_TOKEN * len(item.output_ids)
        return allowed - self._follow(item).seconds

    @property
    def _too_little(self) -> float:
        return TOO_LITTLE * self._allowance


def _grammar(item: Guided) -> Grammar:
    grammar = item.sequence.request.grammar
    assert isinstance(grammar, Grammar)
    return grammar


def _mask(
    followed: _Followed,
    grammar: Grammar,
    ids: tuple[int, ...],
    last_may_end: bool,
    is_over: bool,
) -> np.ndarray | int | None:
    """Takes in what is new of an output, and tells what may follow it; see `Matchers.masks`."""
    began = time.thread_time()
    if is_over:
        grammar.give_up()
    if grammar.is_too_slow:
        return TOO_SLOW
    try:
        while followed.num_taken < len(ids):
            if not followed.matcher.accept_token(ids[followed.num_taken]):
                # A pending token may be one that ended the answer, or no choice at all.
                is_last = followed.num_taken == len(ids) - 1
                return None if last_may_end and is_last else DEAD_END
            followed.num_taken += 1
        if followed.matcher.is_terminated():
            return None
        bits = np.zeros((1, len(grammar.spellable)), np.int32)
        followed.matcher.fill_next_token_bitmask(bits)
        mask: np.ndarray = bits[0] & grammar.spellable
        return mask if mask.any() else DEAD_END
    finally:
        followed.seconds += time.thread_time() - began
