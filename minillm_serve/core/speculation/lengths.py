"""Who says how many drafts each sequence gets."""

from collections.abc import Mapping
from typing import Protocol

from minillm_serve.core.request import Sequence


class DraftLengths(Protocol):
    """Chooses how many drafts each decoding sequence gets in the next step, and learns from it."""

    def choose(
        self, rooms: Mapping[Sequence, int], num_other_tokens: int
    ) -> Mapping[Sequence, int]:
        """How many drafts each of these sequences gets.

        Args:
            rooms: every sequence that decodes in the step, and the most drafts that it may have.
            num_other_tokens: tokens that the step computes besides one for each of them.

        Returns:
            Drafts, from 0 to its room, of each sequence; those that get none may be missing.
        """
        ...

    def note(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Learns what became of at least one draft, when it has been verified."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """Lets go of a sequence that has ended. (Any sequence, also one it never heard of.)"""
        ...


class FixedLengths:
    """As many for everybody, always: what papers and most engines do.

    Args:
        num_drafts: at least 1.

    Raises:
        ValueError: it is less.
    """

    def __init__(self, num_drafts: int) -> None:
        if num_drafts < 1:
            raise ValueError(f"num_drafts={num_drafts}: expected at least 1")
        self.num_drafts = num_drafts

    def choose(self, rooms: Mapping[Sequence, int], num_other_tokens: int) -> dict[Sequence, int]:
        """As many as there is room for, up to the number."""
        most = self.num_drafts
        return {sequence: min(most, room) for sequence, room in rooms.items()}

    def note(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Learns nothing."""

    def forget(self, sequence: Sequence) -> None:
        """Knows nobody."""
