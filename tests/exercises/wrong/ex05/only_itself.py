"""Whoever lacks a block gives way itself, first in rank or not.

Reason: who stands behind
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        if self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            return True
        self.preempt(sequence)
        preempted.append(sequence)
        return False
