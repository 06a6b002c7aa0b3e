"""Compiles shapes for callers that must not wait for it."""

import time
from concurrent.futures import Future
from dataclasses import dataclass

from minillm_serve.core.errors import Overloaded
from minillm_serve.core.structured_outputs import StructuredOutputsParams
from minillm_serve.runtime.structured.grammar import Grammar, GrammarCompiler
from minillm_serve.runtime.structured.worker import Worker

#: Seconds that compiling a shape may take. (Most take milliseconds, a large schema a second.)
ALLOWANCE = 10.0
#: Shapes that may wait to be compiled. (Many may wait for one: it is compiled once.)
MOST_WAITING = 64


@dataclass(slots=True, eq=False)
class _Job:
    asked: StructuredOutputsParams
    began: float | None = None


class CompileQueue:
    """Compiles one shape after the other, apart from whoever asks. One thread may ask it.

    Args:
        grammars: compiles.
        allowance: see `ALLOWANCE`.
    """

    def __init__(self, grammars: GrammarCompiler, allowance: float = ALLOWANCE) -> None:
        self._grammars = grammars
        self._allowance = allowance
        self._worker = Worker()
        self._jobs: dict[Future[Grammar | None], _Job] = {}

    def submit(self, asked: StructuredOutputsParams) -> "Future[Grammar | None]":
        """Has a shape compiled.

        Returns:
            Comes with what `GrammarCompiler.compile` gives or raises. Whoever waits for it must
            call `look` now and then. It may be cancelled, unless it has begun.

        Raises:
            Overloaded: too many wait already.
        """
        self._jobs = {future: job for future, job in self._jobs.items() if not future.done()}
        others = {job.asked for job in self._jobs.values()} - {asked}
        if len(others) >= MOST_WAITING:
            raise Overloaded(
                f"structured_outputs.{asked.kind}: {len(others)} others wait already to be "
                "compiled: send it again later"
            )
        job = _Job(asked)

        def work() -> Grammar | None:
            self._grammars.prepare()  # which is not this shape's fault
            job.began = time.monotonic()
            return self._grammars.compile(asked)

        future = self._worker.submit(work)
        self._jobs[future] = job
        return future

    def look(self) -> None:
        """Gives up what takes too long: `GrammarCompiler.find` refuses it from now on."""
        now = time.monotonic()
        for future, job in list(self._jobs.items()):
            if future.done() or job.began is None or now - job.began <= self._allowance:
                continue
            del self._jobs[future]
            self._grammars.given_up.leave(future)
            self._grammars.given_up.remember(
                job.asked,
                f"it takes too long to compile, more than {self._allowance:g} s; ask for less",
            )
            self._worker.leave()
