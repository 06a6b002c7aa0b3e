"""Hands out blocks without taking them off the free list.

Reason: is in use already: who has it now reads another's tokens
"""


class Blocks(Blocks):  # noqa: F821
    def allocate(self, count):
        if count > self.num_free:
            raise OutOfBlocks(f"{count} asked for, {self.num_free} free")  # noqa: F821
        taken = self.free[:count]
        for block in taken:
            self.counts[block] = 1
        return taken

    @property
    def num_free(self):
        return self.counts.count(0)
