"""Takes a whole run where fewer blocks were asked for.

Reason: blocks were asked for
"""


class MyRadixCache(MyRadixCache):  # noqa: F821
    def evict(self, count):
        evicted = []
        while len(evicted) < count:
            leaves = [n for n in self.nodes.values() if not n.children and not n.locks]
            if not leaves:
                break
            evicted += self.forget(min(leaves, key=lambda node: node.used).blocks[0])[::-1]
        return evicted
