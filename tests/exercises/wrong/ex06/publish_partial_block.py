"""Indexes the block that is being filled, under the tokens that it will hold.

Reason: whoever found it would read what is not there
"""


class Index(Index):  # noqa: F821
    def publish(self, token_ids, block_table, num_written, namespace):
        blocks = -(-num_written // self.block_size)
        return super().publish(token_ids, block_table, blocks * self.block_size, namespace)
