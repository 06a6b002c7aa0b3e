"""Takes from the first in rank, who has had the most.

Reason: who stands behind
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        while not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            victim = self.running[0]
            self.preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
        return True
