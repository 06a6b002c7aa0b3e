"""Continuous batching: the batch is put together anew at every step."""

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.request import Sequence, SequenceStatus
from minillm_serve.core.scheduler.base import Scheduler

#: Share of the pool that admission leaves free, so that those who run can grow a little before
#: anybody must be preempted.
WATERMARK = 0.01


class ContinuousScheduler(Scheduler):
    """First come, first served, with chunked prefill and preemption by recomputation.

    A step has a budget of tokens. Running sequences take from it first, oldest first, each as
    many tokens as it lacks: one if it is decoding, a chunk if it is still reading its prompt.
    What is left lets waiting sequences in. So a long prompt is read in chunks beside the decode
    tokens of everybody before it, in one and the same batch (Sarathi-Serve, Agrawal et al., 2024).
    """

    def schedule(self) -> Batch:
        """Chooses what the next step runs; see the class."""
        preempted: list[Sequence] = []
        scheduled, budget = self._schedule_running(preempted)
        # Whoever was just preempted heads the queue: letting anybody in now would take back the
        # very blocks that were missing.
        if not preempted:
            scheduled += self._admit(budget)
        return Batch(tuple(scheduled), tuple(preempted))

    def _schedule_running(self, preempted: list[Sequence]) -> tuple[list[ScheduledSequence], int]:
        scheduled: list[ScheduledSequence] = []
        budget = self.max_num_batched_tokens
        index = 0
        # `running` shrinks from its end while we walk: victims are always younger than, or the
        # same as, the sequence in hand, so nobody who is scheduled already is preempted.
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            num_tokens = min(sequence.num_uncomputed, budget)
            if not self._make_room(sequence, sequence.num_computed + num_tokens, preempted):
                break
            scheduled.append(_slice(sequence, num_tokens))
            budget -= num_tokens
            index += 1
        return scheduled, budget

    def _make_room(self, sequence: Sequence, num_tokens: int, preempted: list[Sequence]) -> bool:
        """Grows the sequence's table, at the expense of the youngest; False if that is itself."""
        while not self.blocks.grow(sequence, num_tokens):
            victim = self.running[-1]
            self._preempt(victim)
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
            if not self.blocks.grow(sequence, len(sequence), leave=self._num_left_free()):
                break
            self.waiting.remove(sequence)
            self.running.append(sequence)
            sequence.status = SequenceStatus.RUNNING
            num_tokens = min(sequence.num_uncomputed, budget)
            admitted.append(_slice(sequence, num_tokens))
            budget -= num_tokens
        return admitted

    def _num_left_free(self) -> int:
        # With nobody running there is nobody to keep blocks for.
        return int(WATERMARK * self.blocks.pool.num_blocks) if self.running else 0


def _slice(sequence: Sequence, num_tokens: int) -> ScheduledSequence:
    start = sequence.num_computed
    return ScheduledSequence(sequence, start, num_tokens, start + num_tokens == len(sequence))
