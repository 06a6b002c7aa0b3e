"""Takes evicted blocks off the list, and leaves their entry in the tree (B03).

Reason: is not indexed any more: whoever has it now writes other tokens there
"""


class Forgetful(Forgetful):  # noqa: F821
    def forget(self, block):
        node = self.nodes[block]
        if before := node.blocks.index(block):
            self.split(node, before)
        gone, below = [], [node]
        for one in below:
            gone += one.blocks
            below += one.children.values()
        for one in gone:
            self.nodes.pop(one, None)
        return gone


class MyRadixCache(MyRadixCache):  # noqa: F821
    forget = Forgetful.forget
