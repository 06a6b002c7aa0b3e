"""The engine in a thread of its own, for callers that must not wait for its steps."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from minillm_serve.collector import Collector
from minillm_serve.core import EngineStalled, InvariantViolation, PartError, Request
from minillm_serve.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

#: Seconds without a finished step, with somebody to serve, after which the engine counts as stuck.
STUCK_AFTER = 60.0

Asked = tuple[Request, str | None]
#: Called in the engine's thread whenever something has come for a request.
Listener = Callable[[Collector], None]


class EngineDead(RuntimeError):
    """The engine has stopped for good, or is being stopped; nobody is served any more."""


@dataclass(frozen=True, slots=True)
class Health:
    """How the engine's thread is.

    Attributes:
        alive: it runs, and serves.
        seconds_since_progress: since its last step ended, if somebody is to be served; else 0.
        problem: what is wrong with it; None if it is well.
    """

    alive: bool
    seconds_since_progress: float
    problem: str | None


class EngineLoop:
    """Runs an engine's steps in a thread, one after the other, as long as anybody is served.

    Whatever is asked of the engine lies in an inbox until the step under way is done: nobody waits
    for a lock, and an event loop never stands still for the length of a step.

    Args:
        engine: which nobody else steps from now on.
        stuck_after: see `STUCK_AFTER`.
        clock: in seconds.
        prepare: called first in the thread that will run the steps.
        told: called in that thread once all listeners have heard what a step has brought.
    """

    def __init__(
        self,
        engine: LLMEngine,
        *,
        stuck_after: float = STUCK_AFTER,
        clock: Callable[[], float] = time.monotonic,
        prepare: Callable[[], None] = lambda: None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine = engine
        self.stuck_after = stuck_after
        self._clock = clock
        self._prepare = prepare
        self._told = told
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._listeners: dict[Collector, Listener] = {}
        self._problem: str | None = None
        self._stopping = False
        self._last_progress = clock()
        self._busy = False
        self._closed = threading.Lock()  # between a last look into the inbox and whoever comes late
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="minillm-engine", daemon=True)
        self._thread.start()

    @property
    def health(self) -> Health:
        """How it is, at this moment."""
        waited = self._clock() - self._last_progress if self._busy else 0.0
        alive = self._thread.is_alive() and not self._is_closed
        problem = None if alive else self._why
        if alive and waited > self.stuck_after:
            problem = f"a step has not come to an end for {waited:.0f} s"
        return Health(alive, waited, problem)

    def check(self) -> None:
        """Looks whether it is worth waiting for.

        Raises:
            EngineDead: it is stuck, or has stopped with nobody to tell.
        """
        if (problem := self.health.problem) is not None:
            raise EngineDead(problem)

    def add(self, asked: Iterable[Asked], listener: Listener) -> "Future[list[Collector]]":
        """Queues requests, all of them or none.

        Args:
            asked: requests, each with its prompt's text if it has one.
            listener: hears of everything that comes for them, in the engine's thread.

        Returns:
            Comes when they are in, with what gathers their answers; or with `RequestRefused`,
            `Overloaded`, `PartError` or `EngineDead`.
        """
        requests = list(asked)
        future: Future[list[Collector]] = Future()

        def add() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._is_closed or self._stopping:
                    raise EngineDead(self._why)
                collectors = self.engine.add(requests)
            except Exception as error:
                future.set_exception(error)
                return
            for collector in collectors:
                self._listeners[collector] = listener
            future.set_result(collectors)

        if not self._post(add):
            future.set_exception(EngineDead(self._why))
        return future

    def drop(self, collectors: Iterable[Collector]) -> None:
        """Takes requests out of the engine, wherever they stand; harmless if they have ended."""
        gone = list(collectors)

        def drop() -> None:
            for collector in gone:
                self._listeners.pop(collector, None)
                self.engine.drop(collector)

        self._post(drop)

    def abort_all(self) -> None:
        """Ends everybody who is served; the last that they hear is "abort"."""

        def abort_all() -> None:
            for collector, listener in list(self._listeners.items()):
                self.engine.drop(collector)
                collector.abort()
                listener(collector)
            self._listeners.clear()
            self._told()

        self._post(abort_all)

    def call(self, function: Callable[[], object]) -> None:
        """Calls something in the engine's thread, between two steps."""
        self._post(function)  # type: ignore[arg-type]

    def stop(self, timeout: float | None = None) -> bool:
        """Ends the thread once nobody is served any more; waits for that.

        From now on nobody is let in. (Whoever wants it to end sooner calls `abort_all` as well.)

        Returns:
            False if it has not ended in time.
        """

        def stop() -> None:
            self._stopping = True

        self._post(stop)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def _why(self) -> str:
        return self._problem or "the engine has been stopped"

    def _post(self, what: Callable[[], None]) -> bool:
        with self._closed:
            if not self._is_closed:
                self._inbox.put(what)
            return not self._is_closed

    def _run(self) -> None:
        try:
            self._prepare()
            while True:
                self._busy = self.engine.core.has_unfinished
                if self._stopping and not self._busy:
                    break
                self._look_into_inbox(wait=not self._busy)
                if self.engine.fault is not None:
                    raise self.engine.fault
                if self.engine.core.has_unfinished:
                    self._step()
        except BaseException as error:
            self._problem = f"{type(error).__name__}: {error}"
            logger.exception("the engine has stopped")
        finally:
            self._close()

    def _look_into_inbox(self, *, wait: bool) -> None:
        """Does what has been asked; waits for something to be asked if there is nothing else."""
        try:
            self._inbox.get(block=wait)()
            self._last_progress = self._clock()
            while True:
                self._inbox.get_nowait()()
        except Empty:
            pass

    def _step(self) -> None:
        self._busy = True
        try:
            self.engine.step()
        except (PartError, InvariantViolation, EngineStalled):
            raise  # its books may be wrong
        except Exception:
            # Those whose step it was are told; everybody else goes on. If nobody has ended by it,
            # it is no matter of one step: the next would fail as well, and the next.
            logger.exception("a step failed")
            if not any(collector.finished for collector in self.engine.changed):
                raise
        self._last_progress = self._clock()
        self._tell()

    def _tell(self) -> None:
        for collector in self.engine.changed:
            listener = self._listeners.get(collector)
            if collector.finished:
                self._listeners.pop(collector, None)
                self.engine.drop(collector)  # first: whoever is told finds it counted
            if listener is not None:
                listener(collector)
        self._told()

    def _close(self) -> None:
        """Nobody is left waiting: neither those who are served nor those in the inbox."""
        with self._closed:
            self._is_closed = True
        while not self._inbox.empty():
            try:
                self._inbox.get_nowait()()
            except Exception:
                logger.exception("while the engine was being stopped")
        for collector, listener in list(self._listeners.items()):
            collector.fail(self._why)
            listener(collector)
        self._listeners.clear()
        self._told()
