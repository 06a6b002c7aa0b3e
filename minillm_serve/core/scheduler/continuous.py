"""Continuous batching: the batch is put together anew at every step."""

from collections import deque
from typing import ClassVar

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.core.scheduler.base import Scheduler

#: Share of the pool that admission leaves free, so that those who run can grow a little before
#: anybody must be preempted.
WATERMARK = 0.01


class ContinuousScheduler(Scheduler):
    """Chunked prefill beside decoding, and preemption where blocks run short.

    A step has a budget of tokens. Running sequences take from it first: those that are decoding,
    one token each, then those that are still reading their prompt, a chunk. What is left lets
    waiting sequences in. So a long prompt is read in chunks beside the decode tokens of everybody
    else, in one and the same batch (Sarathi-Serve, Agrawal et al., 2024), and nobody waits longer
    for the next token than a step of that budget takes.
    """

    is_steady: ClassVar[bool] = True

    def schedule(self) -> Batch:
        """Chooses what the next step runs; see the class."""
        preempted: list[Sequence] = []
        scheduled, budget = self._schedule_running(preempted)
        # Whoever was just preempted waits for blocks: letting anybody in now would take back the
        # very ones that were missing.
        if not preempted:
            scheduled += self._admit(budget)
        return Batch(tuple(scheduled), tuple(preempted))

    def _schedule_running(self, preempted: list[Sequence]) -> tuple[list[ScheduledSequence], int]:
        scheduled: list[ScheduledSequence] = []
        budget = self.max_num_batched_tokens
        # Among those who decode, as among those who read, the order of rank stays (a stable sort).
        turns = deque(sorted(self.running, key=_is_reading))
        while turns and budget > 0:
            sequence = turns.popleft()
            num_tokens = min(sequence.num_uncomputed, budget)
            if self._make_room(sequence, sequence.num_computed + num_tokens, turns, preempted):
                scheduled.append(ScheduledSequence.of(sequence, num_tokens))
                budget -= num_tokens
        return scheduled, budget

    def _make_room(
        self,
        sequence: Sequence,
        num_tokens: int,
        turns: deque[Sequence],
        preempted: list[Sequence],
    ) -> bool:
        """Grows the sequence's table, at the expense of the last in rank; False if that is itself.

        Only those whose turn is still to come give way: nobody who is scheduled already.
        """
        while not self.blocks.grow(sequence, num_tokens):
            victim = max((sequence, *turns), key=lambda s: s.rank)
            self.preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
            turns.remove(victim)
        return True

    def _admit(self, budget: int) -> list[ScheduledSequence]:
        admitted: list[ScheduledSequence] = []
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self.waiting.head()
            # All tokens it already has must fit, not just the first chunk: admitted on less, it
            # would be thrown out half-way through its prompt and start again.
            if not self.blocks.grow(sequence, len(sequence), leave=self._num_left_free()):
                break
            self.admit(sequence)
            num_tokens = min(sequence.num_uncomputed, budget)
            admitted.append(ScheduledSequence.of(sequence, num_tokens))
            budget -= num_tokens
        return admitted

    def _num_left_free(self) -> int:
        # With nobody running there is nobody to keep blocks for.
        return int(WATERMARK * self.blocks.pool.num_blocks) if self.running else 0


def _is_reading(sequence: Sequence) -> bool:
    return sequence.num_uncomputed > 1
