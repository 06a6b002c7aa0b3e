"""Drafts for the oracle: it knows what comes next, so it guesses as rightly as it is told to."""

import random
from collections.abc import Sequence as Ids

from hypothesis import strategies as st

from minillm_serve.core import ScheduledSequence
from tests.core.oracle import VOCAB, expected_tokens


class Guesser:
    """Guesses what the oracle will say, or something else.

    Args:
        rights: whether each draft of a verification is to be right, again and again; or how likely
            it is that one is.
        count: drafts, if there is room; None: any number that there is room for, at random.
    """

    def __init__(self, rights: Ids[bool] | float, *, count: int | None = None, seed: int = 0):
        self.rights, self.count = rights, count
        self.draw = random.Random(seed)
        self.made: list[tuple[int, ...]] = []

    def __call__(self, item: ScheduledSequence) -> tuple[int, ...]:
        room = item.num_drafts
        count = self.draw.randint(0, room) if self.count is None else min(room, self.count)
        sequence = item.sequence
        right = expected_tokens(sequence.token_ids, count, sequence.index)
        drafts = tuple(
            token if self.is_right(place) else (token + 1 + self.draw.randrange(VOCAB - 1)) % VOCAB
            for place, token in enumerate(right)
        )
        self.made.append(drafts)
        return drafts

    def is_right(self, place: int) -> bool:
        if isinstance(self.rights, float):
            return self.draw.random() < self.rights
        return self.rights[place % len(self.rights)]


class AnyLengths:
    """Gives everybody any number of drafts, and keeps books on who has told it what."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.noted: list[tuple[int, int]] = []
        self.known: set = set()

    def choose(self, rooms, num_other_tokens):
        self.known.update(rooms)
        chosen = {sequence: self.draw.randint(0, room) for sequence, room in rooms.items()}
        return {sequence: count for sequence, count in chosen.items() if count}

    def note(self, sequence, num_drafted, num_accepted):
        assert sequence in self.known
        assert 0 <= num_accepted <= num_drafted
        assert num_drafted >= 1
        self.noted.append((num_drafted, num_accepted))

    def forget(self, sequence):
        self.known.discard(sequence)


def speculation(rightness: float, seed: int) -> dict:
    """Options of `make_engine`: any number of drafts, of which so many are right."""
    return {"guess": Guesser(rightness, seed=seed), "lengths": AnyLengths(seed)}


#: Options of `make_engine`, for drafts of any quality, or none at all.
speculations = st.one_of(
    st.just({}),
    st.builds(speculation, st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.integers(0, 1000)),
)
