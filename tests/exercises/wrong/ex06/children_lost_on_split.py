"""The lower part of a run that is cut is a new node, and what hung below stays with the upper one.

Reason: hangs in the wrong place
"""


class Tree(Tree):  # noqa: F821
    def split(self, node, count):
        at = count * self.block_size
        tokens, blocks = node.tokens[at:], node.blocks[count:]
        node.tokens, node.blocks = node.tokens[:at], node.blocks[:count]
        self.add(node, tokens, blocks).locks = node.locks
        return node
