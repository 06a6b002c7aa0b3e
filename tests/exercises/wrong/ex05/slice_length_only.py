"""Asks for blocks for the slice's length, not up to its end.

Reason: self.blocks.grow(sequence, ...) comes before the slice
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        while not self.blocks.grow(sequence, num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
        return True
