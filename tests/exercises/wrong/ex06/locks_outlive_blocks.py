"""Forgets blocks, and leaves their locks on what is before them.

Reason: num_evictable is wrong
"""


class Forgetful(Forgetful):  # noqa: F821
    def forget(self, block):
        above = list(self.chain(self.nodes[block]))[1:]
        locks = [node.locks for node in above]
        gone = super().forget(block)
        for node, before in zip(above, locks, strict=True):
            node.locks = before
        return gone
