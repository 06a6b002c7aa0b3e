"""A thread that can be left behind."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """Does one thing after the other, in a thread of its own that begins with the first.

    (A `ThreadPoolExecutor` is waited for when the process ends, however long that takes.)
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

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
        if self._thread is None:
            self._start()
        return future

    def leave(self) -> None:
        """What is under way is left to itself; a new thread goes on with what has not begun."""
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="minillm-grammar", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            self._inbox.get()()
