"""The oracle's executor with a device of its own: a step runs when its result is asked for."""

from collections import deque

from minillm_serve.core import Batch, Sequence, SequenceOutput, StepResult
from tests.core.oracle import OracleExecutor, answer, next_token, nothing


class Step:
    """A submitted step: everything in here was read from the sequences when it was submitted."""

    def __init__(self, executor: "DeferredExecutor", batch: Batch) -> None:
        self.executor = executor
        self.result: StepResult | None = None
        self.swaps = batch.blocks_to_swap_out, batch.blocks_to_swap_in
        self.copies = batch.blocks_to_copy
        items = [executor.with_drafts(item) for item in batch.scheduled]
        self.sequences = [item.sequence for item in items]
        self.slices = [(item.start, item.end, item.samples) for item in items]
        self.tables = [list(item.sequence.block_table) for item in items]
        self.drafts = [item.draft_token_ids for item in items]
        self.known = [
            [*item.sequence.token_ids[: item.known_end], *item.draft_token_ids] for item in items
        ]

    def wait(self) -> StepResult:
        while self.result is None:
            self.executor.run_one()
        return self.result


class DeferredExecutor(OracleExecutor):
    """Runs steps in order, as late as possible, and keeps what they sampled to itself.

    A pending token is looked up in what the step before sampled for the same sequence; a slice
    that needs a token which nobody sampled fails.
    """

    def __init__(
        self, num_blocks: int, block_size: int, num_host_blocks: int = 0, guess=nothing
    ) -> None:
        super().__init__(num_blocks, block_size, num_host_blocks, guess)
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
        index = step.sequences[i].index
        output = answer(read, step.drafts[i], lambda tokens: next_token(tokens, index))
        self.sampled[step.sequences[i]] = output.token_ids[-1]
        return output
