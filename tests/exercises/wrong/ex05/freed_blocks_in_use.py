"""Takes blocks out of the last one's table by way of the pool.

Reason: one writes over what the other reads
"""


class GiveWay(Scheduler):  # noqa: F821
    def make_room(self, sequence, num_tokens, preempted):
        while not self.blocks.grow(sequence, sequence.num_computed + num_tokens):
            self.blocks.pool.release(self.running[-1].block_table[-1])
        return True
