"""Publishes without a look at what is cached: the same tokens get a second entry (B02).

Reason: one entry for the same tokens, not two
"""


class Index(Index):  # noqa: F821
    def publish(self, token_ids, block_table, num_written, namespace):
        whole = num_written // self.block_size
        new = [block for block in block_table[:whole] if block not in self.nodes]
        if new:
            tokens = list(token_ids[: whole * self.block_size])
            self.use(self.add(self.roots[namespace], tokens, new))
        return new
