"""Lets in whoever is shortest and fits.

Reason: the small ones keep coming and a large one starves
"""


class Entrance(GiveWay):  # noqa: F821
    def let_in(self, budget):
        made = []
        for sequence in sorted(self.waiting, key=len):
            if not budget or len(self.running) == self.max_num_seqs:
                break
            if not self.blocks.grow(sequence, len(sequence)):
                break
            self.admit(sequence)
            made.append(ScheduledSequence.of(sequence, min(len(sequence), budget)))  # noqa: F821
            budget -= made[-1].num_tokens
        return made
