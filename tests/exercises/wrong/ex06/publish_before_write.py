"""Indexes all blocks of the table, written or not.

Reason: whoever found it would read what is not there
"""


class Index(Index):  # noqa: F821
    def publish(self, token_ids, block_table, num_written, namespace):
        return super().publish(token_ids, block_table, len(token_ids), namespace)
