"""What proved too slow, and is still at work: it cannot be broken off."""

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any

from minillm_serve.core.errors import RequestRefused
from minillm_serve.core.structured_outputs import StructuredOutputsParams

#: Shapes that are remembered; many more than grammars, which are far larger.
MOST_REMEMBERED = 256
#: While more threads than this were left behind and still run, no new shape is tried.
MOST_LEFT = 4


class GivenUp:
    """Shapes that took too long, and threads that were left behind. Several threads may ask it."""

    def __init__(self) -> None:
        self._why: OrderedDict[StructuredOutputsParams, str] = OrderedDict()
        self._left: list[Future[Any]] = []
        self._lock = threading.Lock()

    @property
    def is_crowded(self) -> bool:
        """So many were left behind and still run that there is no room for another."""
        with self._lock:
            self._left = [job for job in self._left if not job.done()]
            return len(self._left) > MOST_LEFT

    def leave(self, job: "Future[Any]") -> None:
        """Somebody's thread was left behind at this."""
        with self._lock:
            self._left = [job, *(left for left in self._left if not left.done())]

    def remember(self, asked: StructuredOutputsParams, why: str) -> None:
        """From now on this shape is refused."""
        with self._lock:
            self._why[asked] = why
            self._why.move_to_end(asked)
            if len(self._why) > MOST_REMEMBERED:
                self._why.popitem(last=False)

    def check(self, asked: StructuredOutputsParams) -> None:
        """Raises `RequestRefused` if this shape proved too slow."""
        with self._lock:
            why = self._why.get(asked)
            if why is not None:
                self._why.move_to_end(asked)
        if why is not None:
            raise RequestRefused(f"structured_outputs.{asked.kind}: {why}")

    def check_room(self, asked: StructuredOutputsParams) -> None:
        """Raises `RequestRefused` if no shape can be tried just now that nobody asked for yet."""
        if self.is_crowded:
            raise RequestRefused(
                f"structured_outputs.{asked.kind}: it was not asked for before, and more than "
                f"{MOST_LEFT} that proved too slow still keep this machine busy: send it again "
                "later"
            )
