"""Compares the seats the wrong way round the edge.

Reason: seats (max_num_seqs)
"""


class Entrance(Scheduler):  # noqa: F821
    def let_in(self, budget):
        made = []
        while self.waiting and budget > 0 and len(self.running) <= self.max_num_seqs:
            sequence = self.waiting.head()
            if not self.blocks.grow(sequence, len(sequence)):
                break
            self.admit(sequence)
            num_tokens = min(sequence.num_uncomputed, budget)
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        return made
