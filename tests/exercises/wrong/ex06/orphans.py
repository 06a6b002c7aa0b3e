"""Forgets the rest of the run, and leaves what hangs below.

Reason: must be forgotten, too: what a block holds counts for all behind it
"""


class Forgetful(Forgetful):  # noqa: F821
    def forget(self, block):
        node = self.nodes[block]
        if before := node.blocks.index(block):
            self.split(node, before)
        del node.parent.children[self.key(node.tokens)]
        lost = node.locks
        for one in self.chain(node):
            one.locks -= lost
        for one in node.blocks:
            del self.nodes[one], self.held[one]
        return node.blocks
