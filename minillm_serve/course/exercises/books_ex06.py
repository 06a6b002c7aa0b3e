"""What a prefix cache knows, kept by the judge: every block by the whole prefix that ends in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from minillm_serve.core import Namespace

#: All tokens up to a block's end, and whose they are.
Prefix: TypeAlias = tuple[Namespace, tuple[int, ...]]


class Refused(Exception):
    """A call that must raise InvariantViolation, and why."""


@dataclass
class Entry:
    """An indexed block.

    Attributes:
        prefix: that ends in it.
        locks: on this very block.
        used: when it was last.
    """

    prefix: Prefix
    locks: int = 0
    used: int = 0


class Books:
    """A prefix cache without any thought of speed, after which others are judged.

    Args:
        block_size: tokens a block.

    Attributes:
        entries: of the indexed blocks.
        gone: blocks that were indexed once and are not now.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.entries: dict[int, Entry] = {}
        self.gone: set[int] = set()
        self._blocks: dict[Prefix, int] = {}
        self._clock = count(1)

    def prefixes(self, tokens: Sequence[int], namespace: Namespace) -> list[Prefix]:
        """Every beginning of whole blocks, the shortest first."""
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [(namespace, tuple(tokens[:end])) for end in ends]

    def find(self, tokens: Sequence[int], namespace: Namespace) -> list[int]:
        """Blocks of the longest cached beginning."""
        prefixes = self.prefixes(tokens, namespace)
        return [self._blocks[prefix] for prefix in prefixes if prefix in self._blocks]

    def chain(self, block: int) -> list[int]:
        """A block and all before it, the first one first."""
        namespace, tokens = self.entries[block].prefix
        return self.find(tokens, namespace)

    def behind(self, block: int) -> list[int]:
        """Blocks that go on where this one ends, in one or more steps."""
        namespace, tokens = self.entries[block].prefix
        return [
            other
            for other, entry in self.entries.items()
            if entry.prefix[0] == namespace
            and len(entry.prefix[1]) > len(tokens)
            and entry.prefix[1][: len(tokens)] == tokens
        ]

    def locked(self) -> set[int]:
        """Blocks that must stay."""
        held = [block for block, entry in self.entries.items() if entry.locks]
        return {before for block in held for before in self.chain(block)}

    @property
    def num_evictable(self) -> int:
        """Blocks that nobody locks."""
        return len(self.entries) - len(self.locked())

    def oldest(self) -> int | None:
        """The block that has to go first."""
        locked = self.locked()
        leaves = [b for b in self.entries if b not in locked and not self.behind(b)]
        return min(leaves, key=lambda block: self.entries[block].used, default=None)

    def use(self, tokens: Sequence[int], namespace: Namespace) -> None:
        """Notes that a chain is used now."""
        now = next(self._clock)
        for block in self.find(tokens, namespace):
            self.entries[block].used = now

    def match(self, tokens: Sequence[int], namespace: Namespace) -> list[int]:
        """As `PrefixCache.match`."""
        self.use(tokens, namespace)
        return self.find(tokens, namespace)

    def publish(
        self, tokens: Sequence[int], table: Sequence[int], num_written: int, namespace: Namespace
    ) -> list[int]:
        """As `PrefixCache.publish`.

        Raises:
            Refused: a block is indexed already.
        """
        found = self.find(tokens[:num_written], namespace)
        prefixes = self.prefixes(tokens[:num_written], namespace)
        new = list(table[len(found) : len(prefixes)])
        if taken := [block for block in new if block in self.entries]:
            raise Refused(f"block {taken[0]} is indexed already, behind other tokens")
        for block, prefix in zip(new, prefixes[len(found) :], strict=True):
            self.entries[block] = Entry(prefix)
            self._blocks[prefix] = block
        self.gone.difference_update(new)
        self.use(tokens[:num_written], namespace)
        return new

    def lock(self, block: int) -> None:
        """As `PrefixCache.lock`.

        Raises:
            Refused: the block is not indexed.
        """
        if block not in self.entries:
            raise Refused(f"block {block} is not indexed")
        self.entries[block].locks += 1

    def unlock(self, block: int) -> None:
        """As `PrefixCache.unlock`.

        Raises:
            Refused: nobody has locked this block.
        """
        if block not in self.entries or not self.entries[block].locks:
            raise Refused(f"nobody has locked block {block} itself")
        self.entries[block].locks -= 1
        namespace, tokens = self.entries[block].prefix
        self.use(tokens, namespace)

    def evict(self, count: int) -> list[int]:
        """As `PrefixCache.evict`."""
        evicted = list[int]()
        while len(evicted) < count and (block := self.oldest()) is not None:
            evicted += self._forget(block)
        return evicted

    def withdraw(self, block: int) -> list[int]:
        """As `PrefixCache.withdraw`."""
        if block not in self.entries:
            return []
        namespace, tokens = self.entries[block].prefix
        self.use(tokens, namespace)
        return self._forget(block)

    def clear(self) -> list[int]:
        """As `PrefixCache.clear`."""
        return self.evict(len(self.entries))

    def _forget(self, block: int) -> list[int]:
        lost = [block, *self.behind(block)]
        for one in lost:
            del self._blocks[self.entries.pop(one).prefix]
        self.gone.update(lost)
        return lost
