"""Locks the run of the block, and not those before it.

Reason: num_evictable is wrong. Locked, by themselves or by what is behind them
"""


class Keeper(Keeper):  # noqa: F821
    def lock(self, block):
        super().lock(block)
        for node in list(self.chain(self.nodes[block]))[1:]:
            node.locks -= 1
