"""A prefix cache under supervision: it notes what each block was published as."""

from minillm_serve.core import PREFIX_CACHES


class Ledger:
    """Passes everything on to a real cache, and checks it against notes of its own."""

    def __init__(self, kind: str, block_size: int) -> None:
        self.cache = PREFIX_CACHES[kind](block_size)
        self.block_size = block_size
        self.known: dict[int, tuple] = {}  # block -> namespace and all tokens up to its end

    @property
    def num_cached(self):
        return self.cache.num_cached

    @property
    def num_evictable(self):
        return self.cache.num_evictable

    def __contains__(self, block):
        return block in self.cache

    def match(self, token_ids, namespace):
        blocks = self.cache.match(token_ids, namespace)
        for i, block in enumerate(blocks):
            assert self.known[block] == self._name(token_ids, i, namespace)
        return blocks

    def publish(self, token_ids, block_table, num_written, namespace):
        blocks = self.cache.publish(token_ids, block_table, num_written, namespace)
        for block in blocks:
            assert block not in self.known
            self.known[block] = self._name(token_ids, block_table.index(block), namespace)
        return blocks

    def lock(self, block):
        self.cache.lock(block)

    def unlock(self, block):
        self.cache.unlock(block)

    def evict(self, count):
        return self._forget(self.cache.evict(count))

    def withdraw(self, block):
        return self._forget(self.cache.withdraw(block))

    def clear(self):
        return self._forget(self.cache.clear())

    def check(self, memory) -> None:
        """Each block holds what it is indexed as, and nothing is indexed twice."""
        assert len(set(self.known.values())) == len(self.known) == self.num_cached
        for block, (_, tokens) in self.known.items():
            assert block in self.cache
            assert tuple(memory[block]) == tokens[-self.block_size :]

    def _name(self, token_ids, index, namespace):
        return namespace, tuple(token_ids[: (index + 1) * self.block_size])

    def _forget(self, blocks):
        for block in blocks:
            del self.known[block]
        return blocks
