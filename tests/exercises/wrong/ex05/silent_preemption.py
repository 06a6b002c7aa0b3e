"""Does not note down who gave way.

Reason: lost its blocks and is missing from Batch.preempted
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        while not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            if victim is sequence:
                return False
        return True
