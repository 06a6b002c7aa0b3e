"""A prefix cache that cannot be wrong: a dict of whole prefixes, and a look at everything."""

from collections import Counter
from itertools import count


class PrefixModel:
    """What `PrefixCache` says, said once more without any thought of speed.

    A prefix is (namespace, all tokens up to a block's end).
    """

    def __init__(self, block_size):
        self.block_size = block_size
        self.block_of, self.used, self.locks = {}, {}, Counter()
        self._now = count()

    @property
    def prefix_of(self):
        return {block: prefix for prefix, block in self.block_of.items()}

    def prefixes(self, tokens, namespace):
        """Every beginning of whole blocks, the shortest first."""
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [(namespace, tuple(tokens[:end])) for end in ends]

    def behind(self, prefix):
        """Cached prefixes that begin with this one, itself among them."""
        namespace, tokens = prefix
        return [
            (space, longer)
            for space, longer in self.block_of
            if space == namespace and longer[: len(tokens)] == tokens
        ]

    def is_locked(self, prefix):
        return any(self.locks[longer] for longer in self.behind(prefix))

    def evictable(self):
        return [prefix for prefix in self.block_of if not self.is_locked(prefix)]

    def use(self, prefixes):
        now = next(self._now)
        self.used.update((prefix, now) for prefix in prefixes if prefix in self.block_of)

    def match(self, tokens, namespace):
        prefixes = self.prefixes(tokens, namespace)
        self.use(prefixes)
        return [self.block_of[prefix] for prefix in prefixes if prefix in self.block_of]

    def publish(self, tokens, table, num_written, namespace):
        prefixes, new = self.prefixes(tokens[:num_written], namespace), []
        for prefix, block in zip(prefixes, table, strict=False):
            if prefix not in self.block_of:
                self.block_of[prefix] = block
                new.append(block)
        self.use(prefixes)
        return new

    def lock(self, block):
        self.locks[self.prefix_of[block]] += 1

    def unlock(self, block):
        namespace, tokens = prefix = self.prefix_of[block]
        self.locks[prefix] -= 1
        self.use(self.prefixes(tokens, namespace))

    def evict(self, count):
        evicted = []
        while len(evicted) < count:
            leaves = [p for p in self.evictable() if len(self.behind(p)) == 1]
            if not leaves:
                break
            evicted.append(self.block_of.pop(min(leaves, key=self.used.__getitem__)))
        return evicted

    def withdraw(self, block):
        namespace, tokens = prefix = self.prefix_of[block]
        gone = self.behind(prefix)
        blocks = [self.block_of.pop(longer) for longer in gone]
        for longer in gone:
            self.locks.pop(longer, None)
        self.use(self.prefixes(tokens, namespace))
        return blocks
