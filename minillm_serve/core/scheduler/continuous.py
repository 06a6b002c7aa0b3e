"""Continuous batching: the batch is put together anew at every step."""

from typing import ClassVar

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence, SequenceStatus
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
        turns = [(sequence.num_uncomputed, sequence) for sequence in self.running]
        turns.sort(key=_is_reading)  # stable: otherwise the order of rank stays
        for missing, sequence in turns:
            if budget == 0:
                break
            if preempted and sequence.status is not SequenceStatus.RUNNING:
                continue  # it gave way
            num_tokens = min(missing, budget)
            if self._make_room(sequence, num_tokens, preempted):
                scheduled.append(self._slice(sequence, num_tokens))
                budget -= num_tokens
        return scheduled, budget

    def _make_room(self, sequence: Sequence, num_tokens: int, preempted: list[Sequence]) -> bool:
        """Grows the sequence's table, at the expense of the last in rank; False if that is itself.

        Nobody gives way who is scheduled already: those who read have had blocks for their whole
        prompt since they came in, and among those who decode the last in rank has its turn last.
        """
        while not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
        return True

    def _admit(self, budget: int) -> list[ScheduledSequence]:
        admitted: list[ScheduledSequence] = []
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self.waiting.head()
            # All tokens it already has must fit, not just the first chunk: admitted on less, it
            # would be thrown out half-way through its prompt and start again.
            if not self.blocks.begin(sequence, leave=self._num_left_free()):
                break
            self.admit(sequence)
            num_tokens = min(sequence.num_uncomputed, budget)
            admitted.append(self._slice(sequence, num_tokens))
            budget -= num_tokens
        return admitted

    def _num_left_free(self) -> int:
        # With nobody running there is nobody to keep blocks for.
        return int(WATERMARK * self.blocks.pool.num_blocks) if self.running else 0


def _is_reading(turn: tuple[int, Sequence]) -> bool:
    return turn[0] > 1
