"""What every policy shares: the queue, the running set, and what happens after a step."""

from abc import ABC, abstractmethod

from minillm_serve.core.batch import (
    Batch,
    ScheduledSequence,
    SequenceOutput,
    SequenceUpdate,
    StepResult,
)
from minillm_serve.core.block_manager import BlockManager
from minillm_serve.core.errors import InvariantViolation
from minillm_serve.core.request import FinishReason, Sequence, SequenceStatus
from minillm_serve.core.scheduler.queue import WaitingQueue


class Scheduler(ABC):
    """Decides which sequences compute how many tokens in the next step.

    A policy implements `schedule`. The life of a sequence is the same under all of them:

        add -> waiting --admit--> running --commit--> finished
                  ^                  |
                  +----preempt-------+      (blocks given back, to be computed again)

    Args:
        blocks: where block tables come from.
        max_num_seqs: most sequences in the running set.
        max_num_batched_tokens: most tokens computed in one step (the token budget).
        max_len: length, in tokens, at which a sequence ends. At most the pool's capacity, so
            that the oldest sequence alone can always go on, if it may preempt all others.
    """

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_len: int,
    ) -> None:
        for name, value in (
            ("max_num_seqs", max_num_seqs),
            ("max_num_batched_tokens", max_num_batched_tokens),
        ):
            if value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        if not 2 <= max_len <= blocks.capacity:
            raise ValueError(
                f"max_len={max_len}: expected from 2 to the pool's capacity of {blocks.capacity} "
                "tokens; raise num_blocks or lower max_model_len"
            )
        self.blocks = blocks
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_len = max_len
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []  # in order of admission
        self.num_preemptions = 0

    @property
    def num_unfinished(self) -> int:
        """Sequences waiting or running."""
        return len(self.waiting) + len(self.running)

    def add(self, sequence: Sequence) -> None:
        """Queues a new sequence, which must have passed the door (`Admission`)."""
        self.waiting.append(sequence)

    @abstractmethod
    def schedule(self) -> Batch:
        """Chooses what the next step runs, and gives those sequences their blocks."""

    def commit(self, batch: Batch, result: StepResult) -> list[SequenceUpdate]:
        """Takes in what a step produced; sequences that have ended leave and free their blocks.

        Sequences that were aborted while the step ran are passed over.
        """
        if len(result.outputs) != len(batch.scheduled):
            raise InvariantViolation(
                f"the executor returned {len(result.outputs)} outputs "
                f"for {len(batch.scheduled)} scheduled sequences"
            )
        updates = [
            self._commit_one(scheduled, output)
            for scheduled, output in zip(batch.scheduled, result.outputs, strict=True)
            if scheduled.sequence.status is SequenceStatus.RUNNING
        ]
        if any(update.finish_reason for update in updates):
            self._drop_finished()
        return [u for u in updates if u.new_token_ids or u.finish_reason]

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """Ends a sequence from outside, in whatever state it is; its blocks are free at once.

        Does nothing if it has ended already.
        """
        if sequence.status is SequenceStatus.FINISHED:
            return
        if sequence.status is SequenceStatus.RUNNING:
            self._end(sequence, reason)
            self._drop_finished()
        else:
            self.waiting.remove(sequence)
            self._end(sequence, reason)

    def _commit_one(self, scheduled: ScheduledSequence, output: SequenceOutput) -> SequenceUpdate:
        sequence = scheduled.sequence
        sequence.num_computed = scheduled.end
        if output.error is not None:
            sequence.error = output.error
            self._end(sequence, FinishReason.ERROR)
            return SequenceUpdate(sequence, finish_reason=FinishReason.ERROR)
        sequence.prompt_logprobs.extend(output.prompt_logprobs)
        kept: list[int] = []
        reason: FinishReason | None = None
        for token in output.token_ids:
            kept.append(token)
            sequence.token_ids.append(token)
            reason = self._reason_to_stop(sequence, token)
            if reason is not None:
                self._end(sequence, reason)
                break
        return SequenceUpdate(sequence, tuple(kept), output.logprobs[: len(kept)], reason)

    def _reason_to_stop(self, sequence: Sequence, token: int) -> FinishReason | None:
        if token in sequence.stop_ids:
            return FinishReason.STOP
        max_tokens = sequence.params.max_tokens
        if max_tokens is not None and sequence.num_output_tokens >= max_tokens:
            return FinishReason.LENGTH
        return FinishReason.LENGTH if len(sequence) >= self.max_len else None

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.status = SequenceStatus.FINISHED
        sequence.finish_reason = reason
        self.blocks.release(sequence)

    def _drop_finished(self) -> None:
        self.running = [s for s in self.running if s.status is SequenceStatus.RUNNING]

    def _preempt(self, sequence: Sequence) -> None:
        """Takes a running sequence's blocks away; its tokens stay and are computed again later."""
        self.running.remove(sequence)
        self.blocks.release(sequence)
        sequence.status = SequenceStatus.PREEMPTED
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.push_front(sequence)
