"""Batches that are put together once, and then run to the end of their longest sequence."""

from abc import abstractmethod
from typing import ClassVar

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.block_manager import BlockManager
from minillm_serve.core.errors import OutOfBlocks
from minillm_serve.core.request import Sequence, SequenceStatus
from minillm_serve.core.scheduler.base import Scheduler
from minillm_serve.core.scheduler.policy import Policy


class FixedBatchScheduler(Scheduler):
    """What static and dynamic batching share; they differ in how long a batch waits to be filled.

    A batch is a table that grows by a column a step, [B, L] -> [B, L + 1]. Nobody comes in before
    it is done, and a row whose sequence has ended stays in it, idle: `Batch.num_idle` counts such
    rows. (A device that needs full tables computes them for nothing, and simulations price that.
    Our kernels take rows of any length, so that here an idle row costs its place alone. And each
    answer goes out when it is done, not when the batch is.)

    Each sequence comes in with room for the longest answer that it may give, as where memory is
    reserved in advance; so nobody is ever preempted. All prompts are read before anybody decodes,
    in chunks if they exceed the token budget.

    Args:
        blocks: see `Scheduler`.
        max_num_seqs: rows of a full batch.
        max_num_batched_tokens: see `Scheduler`. At most so many rows, too: one token each.
        max_len: see `Scheduler`.
        policy: see `Scheduler`.
        max_queue_delay: seconds that a batch may wait to be filled; by default `DEFAULT_DELAY`.
    """

    is_steady: ClassVar[bool] = True
    holds_siblings_back: ClassVar[bool] = False  # they are rows of the same batch
    DEFAULT_DELAY: ClassVar[float]

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_len: int,
        policy: Policy | None = None,
        max_queue_delay: float | None = None,
    ) -> None:
        super().__init__(
            blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_len=max_len,
            policy=policy,
        )
        delay = self.DEFAULT_DELAY if max_queue_delay is None else max_queue_delay
        if not delay >= 0:
            raise ValueError(f"max_queue_delay={delay!r}: give seconds, 0 or more")
        self.max_queue_delay = delay
        self.max_rows = min(max_num_seqs, max_num_batched_tokens)
        self._num_rows = 0  # of the batch that runs

    @property
    @abstractmethod
    def due(self) -> float:
        """When a batch of those who wait begins, full or not. Somebody does wait."""

    @property
    def num_idle(self) -> int:
        """Rows of the batch whose sequences have ended."""
        return self._num_rows - len(self.running)

    @property
    def next_wakeup(self) -> float | None:
        """Until when it waits for others; see `Scheduler`."""
        is_full = len(self.waiting) >= self.max_rows
        if self.running or not self.waiting or is_full or self.draining:
            return None
        return self.due

    def schedule(self) -> Batch:
        """Chooses what the next step runs; see the class."""
        if not self.running:
            self._begin_batch()
        # Nobody decodes before everybody has read all but the last token of their prompt.
        begun = [s for s in self.running if not self._awaits_parent(s)]
        rows = [s for s in begun if s.num_uncomputed > 1] or begun
        scheduled: list[ScheduledSequence] = []
        budget = self.max_num_batched_tokens
        for sequence in rows:
            if budget == 0:
                break
            if not (sequence.block_table or self.blocks.begin(sequence)):
                raise OutOfBlocks(f"the blocks reserved for {sequence} are in use")
            num_tokens = min(sequence.num_uncomputed, budget)
            if not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
                raise OutOfBlocks(f"the blocks reserved for {sequence} are in use")
            scheduled.append(self._slice(sequence, num_tokens))
            budget -= num_tokens
        return Batch(tuple(scheduled), num_idle=self.num_idle)

    def _begin_batch(self) -> None:
        wakeup = self.next_wakeup
        if wakeup is None or self.clock() >= wakeup:
            left = self.blocks.num_available
            while self.waiting and len(self.running) < self.max_rows:
                sequence = self.waiting.head()
                left -= self.blocks.num_blocks_for(self._longest(sequence))
                if left < 0:
                    break
                self.admit(sequence)
        self._num_rows = len(self.running)

    def _awaits_parent(self, sequence: Sequence) -> bool:
        """Whether a sibling has not begun, and number 0 is still reading the prompt for it."""
        parent = sequence.parent
        return (
            parent is not None
            and not sequence.block_table
            and parent.status is SequenceStatus.RUNNING
            and parent.num_written < parent.num_prompt_tokens
        )

    def _longest(self, sequence: Sequence) -> int:
        """Tokens of the sequence when it will have ended, at most."""
        limit = sequence.params.max_tokens
        if limit is None:
            return self.max_len
        return min(self.max_len, sequence.num_prompt_tokens + limit)
