"""An executor that is a stopwatch: it prices batches instead of computing them."""

from __future__ import annotations

from dataclasses import dataclass

from minillm_serve.core.batch import Batch, SequenceOutput, StepResult
from minillm_serve.sim.cost import CostModel, Work

#: The id that a simulated step samples. Requests must ignore it as a stop token.
TOKEN = 0

_SAMPLED, _NOTHING = SequenceOutput((TOKEN,)), SequenceOutput()


class SimClock:
    """Simulated time, in seconds; call it to read it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Lets time go by.

        Raises:
            ValueError: it would run backwards.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds={seconds!r}: time does not run backwards")
        self.now += seconds


@dataclass(frozen=True, slots=True)
class _Done:
    result: StepResult

    def wait(self) -> StepResult:
        return self.result


class SimExecutor:
    """Implements `core.executor.Executor`: a step takes the time that the cost model says.

    Args:
        cost: prices batches.
        clock: advanced by every step; the engine reads the same one.
    """

    def __init__(self, cost: CostModel, clock: SimClock) -> None:
        self.cost = cost
        self.clock = clock

    def submit(self, batch: Batch) -> _Done:
        """Runs a step in no time of ours."""
        self.clock.advance(self.cost.seconds(Work.of(batch)))
        outputs = tuple(_SAMPLED if item.samples else _NOTHING for item in batch.scheduled)
        return _Done(StepResult(outputs))
