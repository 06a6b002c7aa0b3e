"""Finds a block of which the last token was not asked for: nothing is left to compute (B01).

Reason: The caller has left out the last token of the
"""


class Index(Index):  # noqa: F821
    def match(self, token_ids, namespace):
        blocks = super().match(token_ids, namespace)
        rest = list(token_ids[len(blocks) * self.block_size :])
        node = self.nodes[blocks[-1]] if blocks else self.roots[namespace]
        for child in node.children.values():
            if rest and child.tokens[: len(rest)] == rest:
                return [*blocks, child.blocks[0]]
        return blocks
