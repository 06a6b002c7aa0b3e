"""An executor that is a stopwatch: it prices batches instead of computing them."""

from __future__ import annotations

import math

from minillm_serve.core.batch import Batch, ScheduledSequence, SequenceOutput, StepResult
from minillm_serve.core.executor import FinishedStep
from minillm_serve.runtime.sampling.randomness import TEST, stream, uniform
from minillm_serve.sim.cost import CostModel, Work

#: The id that a simulated step samples, and one that it does not. Requests must ignore both as
#: stop tokens.
TOKEN, WRONG = 0, 1

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

    Where the scheduler has room for drafts, all of them are made. Whether one is kept hangs on its
    sequence's seed and its position alone, so that it is the same in whatever steps it is computed.

    Args:
        cost: prices batches.
        clock: advanced by every step; the engine reads the same one.
        block_size: tokens a block (P), for blocks that are swapped.
        acceptance: probability that a draft is kept, if all before it were.
        draft_cost: what a pass of the drafter takes, which gives a draft to each sequence: a share
            of a step of these sequences without drafts.

    Raises:
        ValueError: `acceptance` is no probability, or `draft_cost` negative.
    """

    def __init__(
        self,
        cost: CostModel,
        clock: SimClock,
        block_size: int = 16,
        *,
        acceptance: float = 0.0,
        draft_cost: float = 0.0,
    ) -> None:
        if not 0 <= acceptance <= 1:
            raise ValueError(f"acceptance={acceptance!r}: expected a probability, from 0 to 1")
        if not 0 <= draft_cost < math.inf:
            raise ValueError(f"draft_cost={draft_cost!r}: give a share of a step, 0 or more")
        self.cost = cost
        self.clock = clock
        self.block_size = block_size
        self.acceptance = acceptance
        self.draft_cost = draft_cost

    def submit(self, batch: Batch) -> FinishedStep:
        """Runs a step in no time of ours."""
        if batch.swap_out or batch.swap_in:
            blocks = len(batch.blocks_to_swap_out) + len(batch.blocks_to_swap_in)
            self.clock.advance(self.cost.swap_seconds(blocks * self.block_size))
        drafting = [item for item in batch.scheduled if item.num_drafts]
        if drafting and self.draft_cost:
            self.clock.advance(self._drafting_seconds(drafting))
        self.clock.advance(self.cost.seconds(Work.of(batch)))
        return FinishedStep(StepResult(tuple(map(self._output, batch.scheduled))))

    def _drafting_seconds(self, items: list[ScheduledSequence]) -> float:
        """Each pass gives one draft to every sequence that still lacks some."""
        seconds = 0.0
        for number in range(max(item.num_drafts for item in items)):
            rows = [item.known_end + number for item in items if item.num_drafts > number]
            count, context = len(rows), sum(rows)
            seconds += self.cost.seconds(Work(count, count, count, context, context))
        return self.draft_cost * seconds

    def _output(self, item: ScheduledSequence) -> SequenceOutput:
        if not item.num_drafts:
            return _SAMPLED if item.samples else _NOTHING
        kept, count = 0, item.num_drafts
        tests = stream(item.sequence.seed, TEST)
        while kept < count and uniform(tests, item.known_end + kept) < self.acceptance:
            kept += 1
        drafts = (TOKEN,) * kept + (WRONG,) * (count - kept)
        return SequenceOutput((TOKEN,) * (kept + 1), draft_token_ids=drafts)
