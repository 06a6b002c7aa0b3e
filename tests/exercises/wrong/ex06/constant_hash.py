"""Looks children up by a poor hash, and believes that the first block is the same (B17).

Reason: find returns the wrong blocks
"""


class Tree(Tree):  # noqa: F821
    def key(self, tokens):
        return sum(tokens[: self.block_size]) % 7 if len(tokens) >= self.block_size else None

    def find(self, token_ids, namespace):
        node, blocks, rest = self.roots[namespace], [], list(token_ids)
        while child := node.children.get(self.key(rest)):
            size = self.block_size
            same = 1 + common_blocks(child.tokens[size:], rest[size:], size)  # noqa: F821
            node = child if same == len(child.blocks) else self.split(child, same)
            blocks, rest = blocks + node.blocks, rest[same * size :]
        return node, blocks
