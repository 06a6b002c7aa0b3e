"""Takes any leaf, be it locked.

Reason: is locked, or one behind it is: somebody is reading it
"""


class MyRadixCache(MyRadixCache):  # noqa: F821
    def evict(self, count):
        evicted = []
        while len(evicted) < count:
            leaves = [node for node in self.nodes.values() if not node.children]
            if not leaves:
                break
            evicted += self.forget(min(leaves, key=lambda node: node.used).blocks[-1])
        return evicted
