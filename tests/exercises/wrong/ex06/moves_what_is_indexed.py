"""Lets a block stand in the index twice, behind other tokens.

Reason: is indexed already, behind other tokens
"""


class Index(Index):  # noqa: F821
    def publish(self, token_ids, block_table, num_written, namespace):
        whole = num_written // self.block_size
        tokens = list(token_ids[: whole * self.block_size])
        node, found = self.find(tokens, namespace)
        new = list(block_table[len(found) : whole])
        if new:
            node = self.add(node, tokens[len(found) * self.block_size :], new)
        self.use(node)
        return new
