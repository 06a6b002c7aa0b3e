"""Answers to one prompt that wait for the first of them to read it."""

from collections.abc import Iterable, Iterator

from minillm_serve.core.request import Sequence


class Siblings:
    """Sequences that are not in the queue yet, since another one is to read their prompt first.

    When it has, they share the blocks of the prompt. If it ends before that, or loses its blocks,
    there is nothing to wait for either.
    """

    def __init__(self) -> None:
        self._by_parent: dict[Sequence, list[Sequence]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_parent.values()))

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for siblings in self._by_parent.values() for sequence in siblings)

    def hold(self, sequence: Sequence) -> None:
        """Keeps a sibling until `pop` is called for its parent."""
        assert sequence.parent is not None
        self._by_parent.setdefault(sequence.parent, []).append(sequence)

    def pop(self, parent: Sequence) -> list[Sequence]:
        """Takes out all who wait for this one."""
        return self._by_parent.pop(parent, [])

    def remove(self, sequence: Sequence) -> bool:
        """Takes one out; False if it is not here."""
        siblings = self._by_parent.get(sequence.parent, []) if sequence.parent else []
        if sequence not in siblings:
            return False
        siblings.remove(sequence)
        return True


def family(first: Sequence, *places: Iterable[Sequence]) -> list[Sequence]:
    """The siblings of a number 0 that are in one of these places, and itself at the end."""
    if first.params.n == 1:
        return [first]
    return [*(s for place in places for s in place if s.parent is first), first]
