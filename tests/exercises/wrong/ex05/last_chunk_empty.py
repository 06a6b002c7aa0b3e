"""Goes on letting in when the budget is 0.

Reason: gets an empty slice, of 0 tokens
"""


class Entrance(GiveWay):  # noqa: F821
    def let_in(self, budget):
        made = []
        while self.waiting and len(self.running) < self.max_num_seqs:
            sequence = self.waiting.head()
            if not self.blocks.grow(sequence, len(sequence)):
                break
            self.admit(sequence)
            num_tokens = min(sequence.num_uncomputed, budget)
            made.append(ScheduledSequence.of(sequence, num_tokens))  # noqa: F821
            budget -= num_tokens
        return made
