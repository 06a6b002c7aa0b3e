"""A match is no use: what was published first goes first.

Reason: the leaf whose last use is longest ago goes first
"""


class MyRadixCache(MyRadixCache):  # noqa: F821
    def match(self, token_ids, namespace):
        return self.find(token_ids, namespace)[1]
