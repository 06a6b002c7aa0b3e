"""Locks what comes behind the block on its run, too.

Reason: num_evictable is wrong. Locked, by themselves or by what is behind them
"""


class Keeper(Keeper):  # noqa: F821
    def lock(self, block):
        if block not in self.nodes:
            raise InvariantViolation(f"block {block} is not indexed")  # noqa: F821
        self.held[block] += 1
        for node in self.chain(self.nodes[block]):
            node.locks += 1
