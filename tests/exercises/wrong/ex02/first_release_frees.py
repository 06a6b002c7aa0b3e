"""The first release frees a block, whoever else still reads it.

Reason: num_free is wrong
"""


class MyBlockPool(MyBlockPool):  # noqa: F821
    def release(self, block):
        if not self.counts[block]:
            raise InvariantViolation(f"block {block} is free")  # noqa: F821
        self.counts[block] -= 1
        if block not in self.free:
            self.free.append(block)
