"""Two locks on a block are undone by one unlock.

Reason: num_evictable is wrong
"""


class Keeper(Keeper):  # noqa: F821
    def unlock(self, block):
        for _ in range(self.held[block]):
            super().unlock(block)
