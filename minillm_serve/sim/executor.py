"""An executor that is a stopwatch: it prices batches instead of computing them."""

from __future__ import annotations

from minillm_serve.core.batch import Batch, SequenceOutput, StepResult
from minillm_serve.core.executor import FinishedStep
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

    def wait_until(self, time: float) -> None:
        """Lets time go by until then, if it has not come yet."""
        self.now = max(self.now, time)


class SimExecutor:
    """Implements `core.executor.Executor`: a step takes the time that the cost model says.

    (Copies within the pool are free here: a block is next to nothing beside the weights.)

    Args:
        cost: prices batches.
        clock: advanced by every step; the engine reads the same one.
        block_size: tokens a block (P), for blocks that are swapped.
    """

    def __init__(self, cost: CostModel, clock: SimClock, block_size: int = 16) -> None:
        self.cost = cost
        self.clock = clock
        self.block_size = block_size

    def submit(self, batch: Batch) -> FinishedStep:
        """Runs a step in no time of ours."""
        if batch.swap_out or batch.swap_in:
            blocks = len(batch.blocks_to_swap_out) + len(batch.blocks_to_swap_in)
            self.clock.advance(self.cost.swap_seconds(blocks * self.block_size))
        self.clock.advance(self.cost.seconds(Work.of(batch)))
        outputs = tuple(_SAMPLED if item.samples else _NOTHING for item in batch.scheduled)
        return FinishedStep(StepResult(outputs))
