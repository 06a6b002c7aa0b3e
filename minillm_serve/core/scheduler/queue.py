"""Sequences that wait for their turn."""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count

from minillm_serve.core.request import Sequence, SequenceStatus

_Entry = tuple[tuple[float, int], int, Sequence]


class WaitingQueue:
    """A queue in order of rank, in which anybody comes or goes in O(log n).

    Who leaves from the middle (aborted, say) stays in the heap as a shadow until it gets to the
    top, or until the shadows outnumber the living.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: OrderedDict[int, _Entry] = OrderedDict()  # by id, in order of coming
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        """All of them, the first in line first."""
        return (sequence for _, _, sequence in sorted(self._entries.values()))

    def add(self, sequence: Sequence) -> None:
        """Somebody takes their place, by `Sequence.rank`."""
        entry = (sequence.rank, next(self._numbers), sequence)
        self._entries[id(sequence)] = entry
        heapq.heappush(self._heap, entry)

    def head(self) -> Sequence:
        """The next in line, who stays."""
        return self._heap[0][2]

    def remove(self, sequence: Sequence) -> None:
        """Somebody leaves, from wherever they stand."""
        del self._entries[id(sequence)]
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = sorted(self._entries.values())
        while self._heap and self._entries.get(id(self._heap[0][2])) is not self._heap[0]:
            heapq.heappop(self._heap)

    def oldest(self) -> Sequence:
        """The one that came before all others, whatever its rank."""
        return next(iter(self._entries.values()))[2]

    def newest(self) -> Sequence:
        """The one that came after all others."""
        return next(reversed(self._entries.values()))[2]


class Deadlines:
    """Who must have begun by when."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sequence]] = []
        self._numbers = count()

    def add(self, sequence: Sequence) -> None:
        """Watches a sequence, if its request has a deadline."""
        if sequence.request.deadline is not None:
            entry = (sequence.request.deadline, next(self._numbers), sequence)
            heapq.heappush(self._heap, entry)

    @property
    def next(self) -> float:
        """The earliest deadline of those who have never run; infinity if there is none."""
        while self._heap and self._heap[0][2].status is not SequenceStatus.WAITING:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def pop_expired(self, now: float) -> list[Sequence]:
        """Takes out all who have never run though their deadline is past."""
        expired = []
        while self.next <= now:
            expired.append(heapq.heappop(self._heap)[2])
        return expired
