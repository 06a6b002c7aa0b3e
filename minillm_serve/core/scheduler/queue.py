"""Sequences that wait for their turn, first come, first served."""

from collections import OrderedDict
from collections.abc import Iterator

from minillm_serve.core.request import Sequence


class WaitingQueue:
    """A queue in which the head, the tail and any member in between leave in O(1).

    (A deque would need O(n) to let a sequence in the middle go, when its user has left.)
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[int, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._entries.values())

    def append(self, sequence: Sequence) -> None:
        """A newcomer goes to the end."""
        self._entries[id(sequence)] = sequence

    def push_front(self, sequence: Sequence) -> None:
        """A preempted sequence goes before everybody who came later."""
        self._entries[id(sequence)] = sequence
        self._entries.move_to_end(id(sequence), last=False)

    def head(self) -> Sequence:
        """The next in line, who stays."""
        return next(iter(self._entries.values()))

    def remove(self, sequence: Sequence) -> None:
        """Somebody leaves, from wherever they stand."""
        del self._entries[id(sequence)]
