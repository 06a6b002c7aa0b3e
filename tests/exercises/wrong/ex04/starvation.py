"""Lets in whoever fits: small requests pass a large one for ever.

Reason: the small ones keep coming and a large one starves
"""


class Entrance(Scheduler):  # noqa: F821
    def let_in(self, budget):
        made = []
        for sequence in list(self.waiting):
            if not budget or len(self.running) == self.max_num_seqs:
                break
            if not self.blocks.grow(sequence, len(sequence)):
                continue
            self.admit(sequence)
            num_tokens = min(sequence.num_uncomputed, budget)
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        return made
