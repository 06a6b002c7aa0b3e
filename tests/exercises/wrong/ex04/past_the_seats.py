"""Lets in as long as there are blocks.

Reason: seats (max_num_seqs)
"""


class Entrance(Scheduler):  # noqa: F821
    def let_in(self, budget):
        made = []
        while self.waiting and budget > 0:
            sequence = self.waiting.head()
            if not self.blocks.grow(sequence, len(sequence)):
                break
            self.admit(sequence)
            num_tokens = min(sequence.num_uncomputed, budget)
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        return made
