"""Gives nothing back.

Reason: though nobody locks
"""


class MyRadixCache(MyRadixCache):  # noqa: F821
    def evict(self, count):
        return []
