"""Takes what there is, and only then finds that it is too little.

Reason: it refused, and took blocks all the same
"""


class Blocks(Blocks):  # noqa: F821
    def allocate(self, count):
        taken = []
        for _ in range(count):
            if not self.free:
                raise OutOfBlocks(f"{count} asked for, {len(taken)} were free")  # noqa: F821
            block = self.free.pop()
            self.counts[block] = 1
            taken.append(block)
        return taken
