"""The oracle's executor with a device of its own: a step runs when its result is asked for."""

from collections import deque

from minillm_serve.core import Batch, Sequence, SequenceOutput, StepResult
from tests.core.oracle import OracleExecutor, next_token


class Step:
    """A submitted step: everything in here was read from the sequences when it was submitted."""

    def __init__(self, executor: "DeferredExecutor", batch: Batch) -> None:
        self.executor = executor
        self.result: StepResult | None = None
        self.swaps = batch.blocks_to_swap_out, batch.blocks_to_swap_in
        self.copies = batch.blocks_to_copy
        self.sequences = [item.sequence for item in batch.scheduled]
        self.slices = [(item.start, item.end, item.samples) for item in batch.scheduled]
        self.tables = [list(item.sequence.block_table) for item in batch.scheduled]
        self.known = [item.sequence.token_ids[: item.end] for item in batch.scheduled]

    def wait(self) -> StepResult:
        while self.result is None:
            self.executor.run_one()
        return self.result


class DeferredExecutor(OracleExecutor):
    """Runs steps in order, as late as possible, and keeps what they sampled to itself.

    A pending token is looked up in what the step before sampled for the same sequence; a slice
    that needs a token which nobody sampled fails.
    """

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        super().__init__(num_blocks, block_size, num_host_blocks)
        self.queue: deque[Step] = deque()
        self.sampled: dict[Sequence, int] = {}
        self.submitted: list[Step] = []
        self.most_queued = 0

    def submit(self, batch: Batch) -> Step:  # type: ignore[override]
        step = Step(self, batch)
        self.queue.append(step)
        self.submitted.append(step)
        self.most_queued = max(self.most_queued, len(self.queue))
        return step

    def run_one(self) -> None:
        step = self.queue.popleft()
        self.copy(step.swaps[0], step.copies, step.swaps[1])
        before, self.sampled = self.sampled, {}
        outputs = []
        for i, sequence in enumerate(step.sequences):
            start, end, samples = step.slices[i]
            tokens = list(step.known[i])
            if len(tokens) < end:
                tokens.append(before[sequence])
            assert len(tokens) == end, "more than one token is unknown"
            for position in range(start, end):
                block, row = self._slot(step.tables[i], position)
                self.memory[block][row] = tokens[position]
            outputs.append(self._sample(step, i, end) if samples else SequenceOutput())
        step.result = StepResult(tuple(outputs))

    def _sample(self, step: Step, i: int, end: int) -> SequenceOutput:
        read = []
        for position in range(end):
            block, row = self._slot(step.tables[i], position)
            read.append(self.memory[block][row])
        token = next_token(read, step.sequences[i].index)
        self.sampled[step.sequences[i]] = token
        return SequenceOutput((token,))
