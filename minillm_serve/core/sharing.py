"""Who shares which blocks: the prefix cache, and the sequences that use it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minillm_serve.core.block_pool import BlockAllocator
from minillm_serve.core.prefix.namespace import Namespace
from minillm_serve.core.prefix.protocol import PrefixCache
from minillm_serve.core.request import NEVER, Sequence


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """What the prefix cache was good for, and what it holds now.

    Attributes:
        queries: prompt tokens that were looked up: once a request, when it is let in.
        hits: those of them that were found.
        num_live: blocks that sequences name; 0 when nobody is there.
        num_cached: blocks that nobody names, kept for whoever comes with the same beginning. They
            are as good as free.
        num_evicted: blocks that were forgotten to make room.
    """

    queries: int
    hits: int
    num_live: int
    num_cached: int
    num_evicted: int

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens that were found; 0 if none was looked up."""
        return self.hits / self.queries if self.queries else 0.0


class SharedBlocks:
    """A prefix cache at work over a pool.

    The cache holds a reference of the pool on every block that it indexes, so that a block is free
    when no table and no index names it:

        ref_count = tables that name it + 1 if it is indexed

    Of each sequence it is known how many of its first blocks are indexed (`depth`): those, and no
    others. The last of them is locked, and with it all before. So whatever a table names is locked
    if it is indexed, and nothing else is: what is evictable would really be free.

    Args:
        pool: where the blocks are.
        block_size: tokens a block (P).
        cache: the index; None shares nothing.
        namespace: of the engine; each request's own salt is added.
    """

    def __init__(
        self,
        pool: BlockAllocator,
        block_size: int,
        cache: PrefixCache | None,
        namespace: Namespace,
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.cache = cache
        self.namespace = namespace
        self.num_evicted = self.queries = self.hits = 0
        self._depths: dict[Sequence, int] = {}

    @property
    def num_evictable(self) -> int:
        """Indexed blocks that no table names."""
        return self.cache.num_evictable if self.cache is not None else 0

    def depth(self, sequence: Sequence) -> int:
        """How many of the first blocks of a table are indexed."""
        return self._depths.get(sequence, 0)

    def match(self, sequence: Sequence) -> list[int]:
        """The longest cached beginning of a sequence: whole blocks, and never its last token.

        Nothing for those that want log probabilities of their prompt: they must compute it.
        """
        if self.cache is None or sequence.lacks_prompt_logprobs:
            return []
        return self.cache.match(sequence.token_ids[:-1], self._namespace(sequence))

    def count(self, sequence: Sequence, num_tokens: int) -> None:
        """Counts a request that is let in, and so many tokens of it that were found."""
        if self.cache is not None and not sequence.lacks_prompt_logprobs:
            self.queries += len(sequence)
            self.hits += num_tokens
        sequence.num_cached_tokens = num_tokens

    def hold(self, sequence: Sequence, depth: int) -> None:
        """Notes how many of the first blocks of a table are indexed, and locks those."""
        before = self._depths.pop(sequence, 0)
        if self.cache is None or depth == before == 0:
            return
        if depth:
            self.cache.lock(sequence.block_table[depth - 1])
            self._depths[sequence] = depth
        if before:
            self.cache.unlock(sequence.block_table[before - 1])

    def promise(self, sequence: Sequence, num_tokens: int) -> None:
        """Gives others what the step that is being put together writes, up to so many tokens.

        They may come in by the very same step: each layer writes before it attends. And steps run
        in their order.
        """
        if self.cache is None:
            return
        depth, new = self.depth(sequence), self.publish(sequence, num_tokens)
        if not new:
            return
        if new[0] != sequence.block_table[depth]:
            # Somebody else has written the same before. Behind blocks that we do not name, ours
            # would keep those locked: so much more than our own table would be in use.
            self._drop(self.cache.withdraw(new[0]))
            return
        self.hold(sequence, depth + len(new))

    def publish(self, sequence: Sequence, num_tokens: int) -> list[int]:
        """Indexes the whole blocks among the first so many tokens; returns the new ones, unlocked.

        (Not what it shares with a sibling and is not indexed: that would have to be locked for the
        sibling, too.)
        """
        if self.cache is None:
            return []
        first = end = self.depth(sequence)
        last = min(num_tokens, len(sequence.token_ids)) // self.block_size
        table = sequence.block_table
        while end < last and self.pool.ref_count(table[end]) == 1:
            end += 1
        if end == first:
            return []
        written, namespace = end * self.block_size, self._namespace(sequence)
        new = self.cache.publish(sequence.token_ids, table, written, namespace)
        for block in new:
            self.pool.acquire(block)
        return new

    def withdraw(self, starts: Mapping[Sequence, int]) -> list[Sequence]:
        """Takes back what was promised and has not been written.

        Args:
            starts: sequences, and from which position on their KV is not to be trusted.

        Returns:
            The sequences that name any of it.
        """
        lost = set[int]()
        for sequence, start in starts.items():
            first = start // self.block_size
            lost.update(sequence.block_table[first : self.depth(sequence)])
        if self.cache is None or not lost:
            return []
        holders = []
        for sequence, depth in list(self._depths.items()):
            indexed = sequence.block_table[:depth]
            kept = next((i for i, block in enumerate(indexed) if block in lost), depth)
            if kept < depth:
                self.hold(sequence, kept)
                sequence.num_written = NEVER
                holders.append(sequence)
        for block in lost:
            self._drop(self.cache.withdraw(block))
        return holders

    def make_free(self, count: int) -> None:
        """Evicts until so many blocks of the pool are free, if there is anything to evict."""
        if self.cache is not None and count > self.pool.num_free:
            self.num_evicted += self._drop(self.cache.evict(count - self.pool.num_free))

    def clear(self) -> None:
        """Forgets everything that nobody uses, and what was counted."""
        if self.cache is not None:
            self._drop(self.cache.clear())
        self.num_evicted = self.queries = self.hits = 0

    def _drop(self, blocks: list[int]) -> int:
        for block in blocks:
            self.pool.release(block)
        return len(blocks)

    def _namespace(self, sequence: Sequence) -> Namespace:
        salt = sequence.request.cache_salt
        return self.namespace if salt is None else replace(self.namespace, salt=salt)
