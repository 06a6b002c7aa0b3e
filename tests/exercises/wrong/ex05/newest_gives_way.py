"""Takes from whoever came last, whatever the rank.

Reason: gave way in this step, and is in the batch all the same
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        while not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            victim = max(self.running, key=lambda s: s.arrival_time)
            self.preempt(victim)
            preempted.append(victim)
            if victim is sequence:
                return False
        return True
