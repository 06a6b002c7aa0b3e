"""From the engine's thread to the event loops of those who wait for its tokens."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress


class Bell:
    """Wakes readers: each event loop once for all that a step has brought its readers.

    (A call into an event loop is a system call, and hands the interpreter over to its thread:
    with one for each reader, a step of many would wait as often.) For the engine's thread alone.
    """

    def __init__(self) -> None:
        self._waiting: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Event]] = defaultdict(
            list
        )

    def remember(self, loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
        """There is something for whoever waits for this event."""
        self._waiting[loop].append(news)

    def ring(self) -> None:
        """Sets the events that there are."""
        for loop, events in self._waiting.items():
            with suppress(RuntimeError):  # the event loop is closed: nobody reads any more
                loop.call_soon_threadsafe(_set_all, events)
        self._waiting.clear()


def _set_all(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        event.set()
