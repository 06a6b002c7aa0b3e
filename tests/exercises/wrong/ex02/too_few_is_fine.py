"""Gives fewer blocks than asked for, and says nothing.

Reason: it should raise OutOfBlocks
"""


class Blocks(Blocks):  # noqa: F821
    def allocate(self, count):
        taken = [self.free.pop() for _ in range(min(count, self.num_free))]
        for block in taken:
            self.counts[block] = 1
        return taken
