"""Takes the least recently used block, wherever it is.

Reason: which is behind it: no look-up gets there any more
"""


class MyRadixCache(MyRadixCache):  # noqa: F821
    def evict(self, count):
        idle = [block for block, node in self.nodes.items() if not node.locks]
        idle.sort(key=lambda block: self.nodes[block].used)
        for block in idle[:count]:
            self.nodes.pop(block)
        return idle[:count]
