"""A thread that can be left behind."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Does one thing after the other, in a thread of its own.

    (A `ThreadPoolExecutor` is waited for when the process ends, however long that takes.)
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="minillm-grammar", daemon=True).start()

    def submit(self, what: Callable[[], T]) -> "Future[T]":
        """Has something done."""
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(what())
                except BaseException as error:
                    future.set_exception(error)

        self._inbox.put(work)
        return future

    def leave(self) -> None:
        """The thread ends when it is done with what it has begun, and nobody waits for it."""
        self._inbox.put(None)

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()
