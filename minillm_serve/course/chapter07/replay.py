"""The steps that an engine takes over a known answer, with the drafts that it would have had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One verification.

    Attributes:
        start: tokens of the answer that were there before.
        room: drafts that there could have been.
        drafts: what was guessed; maybe less, maybe nothing.
        kept: how many of it were right.
        token: the one more that every step gives.
    """

    start: int
    room: int
    drafts: tuple[int, ...]
    kept: int
    token: int

    @property
    def end(self) -> int:
        """Tokens of the answer that are there after."""
        return self.start + self.kept + 1


def replay(token_ids: Sequence[int], guesses: Sequence[tuple[int, ...]], k: int) -> list[Step]:
    """The steps over a greedy answer.

    The first token of an answer comes with the last one of its prompt: there is no step for it. As
    in the engine there are never more drafts than tokens that are still wanted, less the one that
    comes in any case.

    Args:
        token_ids: of the answer.
        guesses: entry i: drafts when i tokens are there, k of them if there are so many.
        k: most drafts in a step; 0 for plain decoding.
    """
    steps, now = list[Step](), 1
    while now < len(token_ids):
        room = min(k, len(token_ids) - now - 1)
        drafts, kept = guesses[now][:room], 0
        while kept < len(drafts) and drafts[kept] == token_ids[now + kept]:
            kept += 1
        steps.append(Step(now, room, drafts, kept, token_ids[now + kept]))
        now = steps[-1].end
    return steps


@dataclass(frozen=True, slots=True)
class Tally:
    """What some steps were good for.

    Attributes:
        steps: how many.
        tokens: that they gave.
        drafts: that they verified.
        kept: the ones that were right.
        tried: places for drafts before which all was right.
    """

    steps: int
    tokens: int
    drafts: int
    kept: int
    tried: int

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Tally:
        """Counts."""
        each = list(steps)
        return cls(
            len(each),
            sum(step.kept + 1 for step in each),
            sum(len(step.drafts) for step in each),
            sum(step.kept for step in each),
            sum(min(step.kept + 1, step.room) for step in each),
        )

    @property
    def alpha(self) -> float:
        """The chance that the next token is guessed, all before it being right; 0 before any try.

        No guess counts as a wrong one. What stands behind a wrong one does not count: it follows a
        token that is not there.
        """
        return self.kept / self.tried if self.tried else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step gave on average; 1 without drafts."""
        return self.tokens / self.steps if self.steps else 1.0

    @property
    def drafts_per_step(self) -> float:
        """Drafts of a step on average."""
        return self.drafts / self.steps if self.steps else 0.0
