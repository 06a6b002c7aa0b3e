"""Takes the leaf that was used last.

Reason: the leaf whose last use is longest ago goes first
"""


class MyRadixCache(MyRadixCache):  # noqa: F821
    def evict(self, count):
        evicted = []
        while len(evicted) < count:
            leaves = [n for n in self.nodes.values() if not n.children and not n.locks]
            if not leaves:
                break
            evicted += self.forget(max(leaves, key=lambda node: node.used).blocks[-1])
        return evicted
