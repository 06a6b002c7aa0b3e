"""Frees a block that is free already: it is in the list twice.

Reason: it should raise InvariantViolation
"""


class MyBlockPool(MyBlockPool):  # noqa: F821
    def release(self, block):
        self.counts[block] = max(0, self.counts[block] - 1)
        if not self.counts[block]:
            self.free.append(block)
