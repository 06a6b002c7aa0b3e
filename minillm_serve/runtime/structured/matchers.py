"""What may come next in each answer that has to follow a grammar."""

import time
import weakref
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

#: Why there is no mask; keys of `sampler.FAULTS`.
DEAD_END, TOO_SLOW = -3, -4


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

    Args:
        allowance: see `ALLOWANCE`.
    """

    def __init__(self, allowance: float = ALLOWANCE) -> None:
        self._allowance = allowance
        self._followed: weakref.WeakKeyDictionary[Sequence, _Followed] = weakref.WeakKeyDictionary()
        self._worker: Worker | None = None

    def masks(self, guided: Items[Guided], last: Items[int]) -> list[np.ndarray | int | None]:
        """What may come next at each of some choices.

        Args:
            guided: the choices.
            last: the token before each choice of the step, by row.

        Returns:
            For each of `guided`: [W] int32, a bit for each id; or `DEAD_END` or `TOO_SLOW`; or
            None if the answer has ended already, and nothing will come of the choice.
        """
        if self._worker is None:
            self._worker = Worker()
        jobs = [self._begin(item, last[item.row]) for item in guided]
        masks: list[np.ndarray | int | None] = []
        for index, item in enumerate(guided):
            try:
                masks.append(jobs[index].result(self._seconds_left(item)))
            except TimeoutError:
                # It cannot be broken off. It is left to itself, and the others start anew.
                masks.append(self._give_up(item))
                self._worker.leave()
                self._worker = Worker()
                for later in range(index + 1, len(guided)):
                    if jobs[later].cancel():
                        jobs[later] = self._begin(guided[later], last[guided[later].row])
        return masks

    def _begin(self, item: Guided, last: int) -> "Future[np.ndarray | int | None]":
        assert self._worker is not None
        grammar = _grammar(item)
        if item.sequence not in self._followed:
            self._followed[item.sequence] = _Followed(grammar.matcher())
        ids = (*item.output_ids, last) if item.has_pending else item.output_ids
        followed = self._followed[item.sequence]
        return self._worker.submit(partial(_mask, followed, grammar, ids, item.has_pending))

    def _seconds_left(self, item: Guided) -> float:
        allowed = self._allowance + ALLOWANCE_PER_TOKEN * len(item.output_ids)
        return max(0.0, allowed - self._followed[item.sequence].seconds)

    def _give_up(self, item: Guided) -> int:
        _grammar(item).is_too_slow = True
        return TOO_SLOW


def _grammar(item: Guided) -> Grammar:
    grammar = item.sequence.request.grammar
    assert isinstance(grammar, Grammar)
    return grammar


def _mask(
    followed: _Followed, grammar: Grammar, ids: tuple[int, ...], last_may_end: bool
) -> np.ndarray | int | None:
    """Takes in what is new of an output, and tells what may follow it; see `Matchers.masks`."""
    began = time.thread_time()
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
