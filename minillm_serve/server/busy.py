"""How busy the executor has been of late."""

import threading
from collections import deque

#: Seconds: long enough to hold many steps, short enough to fall to 0 soon after the last one.
WINDOW = 10.0


class BusyShare:
    """Share of the last seconds in which a step ran. One thread adds steps, another one reads.

    Args:
        window: how many seconds.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self.window = window
        self._steps: deque[tuple[float, float]] = deque()  # from when to when, none overlapping
        self._lock = threading.Lock()

    def add(self, began: float, ended: float) -> float:
        """A step has run. (The next one may have begun before: time counts once.)

        Returns:
            Seconds that it adds.
        """
        with self._lock:
            if self._steps:
                began = max(began, self._steps[-1][1])
            if ended <= began:
                return 0.0
            self._steps.append((began, ended))
            while self._steps[0][1] < ended - self.window:
                self._steps.popleft()
            return ended - began

    def at(self, now: float, under_way: float = 0.0) -> float:
        """The share, from 0 to 1.

        Args:
            now: on the clock of the steps.
            under_way: seconds for which a step has been running that is not done yet.
        """
        begin = now - self.window
        with self._lock:
            busy = sum(max(ended - max(began, begin), 0.0) for began, ended in self._steps)
        return min((busy + under_way) / self.window, 1.0)
