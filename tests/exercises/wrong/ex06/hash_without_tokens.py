"""Takes a hash for the tokens: a child that has the same one is not compared any more (B17).

Reason: different first blocks, and have the same key
"""


class Tree(Tree):  # noqa: F821
    def key(self, tokens):
        return hash(tuple(tokens[: self.block_size]))
