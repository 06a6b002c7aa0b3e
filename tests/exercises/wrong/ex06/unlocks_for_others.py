"""Undoes a lock of a block behind it.

Reason: nobody has locked block
"""


class Keeper(Keeper):  # noqa: F821
    def unlock(self, block):
        if block not in self.nodes or not self.nodes[block].locks:
            raise InvariantViolation(f"block {block} is not locked")  # noqa: F821
        self.held[block] -= 1
        for node in self.chain(self.nodes[block]):
            node.locks -= 1
        self.use(self.nodes[block])
