"""Says that there is room even if the sequence gave way itself.

Reason: gave way in this step, and is in the batch all the same
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        while not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            victim = self.running[-1]
            self.preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                break
        return True
