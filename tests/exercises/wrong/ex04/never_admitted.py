"""Schedules newcomers without admitting them.

Reason: still in the queue: self.admit(sequence) is missing
"""


class Entrance(Scheduler):  # noqa: F821
    def let_in(self, budget):
        made = []
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self.waiting.head()
            if not self.blocks.grow(sequence, len(sequence)):
                break
            num_tokens = min(sequence.num_uncomputed, budget)
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        return made
