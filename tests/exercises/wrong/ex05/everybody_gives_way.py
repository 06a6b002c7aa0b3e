"""Clears the house for whoever lacks a block.

Reason: gives way in vain
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        if self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            return True
        for victim in list(reversed(self.running)):
            if victim is not sequence and victim.rank > sequence.rank:
                self.preempt(victim)
                preempted.append(victim)
        if self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            return True
        self.preempt(sequence)
        preempted.append(sequence)
        return False
