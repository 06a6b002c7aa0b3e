"""Prefixes by name: a flat map from the hash of all tokens up to a block's end to that block."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from struct import Struct

from minillm_serve.core.errors import InvariantViolation
from minillm_serve.core.prefix.namespace import Key, Namespace, block_keys


def sha256(data: bytes) -> bytes:
    """32 bytes; nobody knows how to find two texts that have them in common."""
    return hashlib.sha256(data).digest()


class Entry:
    """An indexed block: its own tokens (`key`), the name of all up to its end (`digest`).

    Its `locks` are those on itself, and one for each block right behind it that has any.
    """

    __slots__ = ("block", "digest", "key", "locks", "parent")

    def __init__(self, block: int, digest: bytes, key: Key, parent: "Entry | None") -> None:
        self.block, self.digest, self.key, self.locks = block, digest, key, 0
        self.parent = parent or self


class HashPrefixCache:
    """A prefix cache of chained block hashes, the idea of vLLM's.

        digest of block i  =  H(digest of block i-1, tokens of block i)

    One digest names a whole prefix, so that a flat map finds it. A hit is verified by the block's
    own tokens and its link to the block before, which has been verified likewise: where two
    prefixes have one digest, the later one is not indexed, and never takes the other's blocks.

    Args:
        block_size: tokens a block.
        hash_function: from bytes to a digest.
    """

    def __init__(self, block_size: int, hash_function: Callable[[bytes], bytes] = sha256) -> None:
        self.block_size = block_size
        self._hash = hash_function
        self._pack = Struct(f"<{block_size}q").pack  # 8 bytes a token
        self._by_digest: dict[bytes, Entry] = {}
        self._by_block: dict[int, Entry] = {}
        self._own_locks = Counter[int]()
        # Whatever nobody locks, least recently used first. A chain in use moves to the end, its
        # last block first: so each block stands before its parent, and the foremost is a leaf.
        self._idle = OrderedDict[Entry, None]()
        self._root = Entry(-1, b"", (), None)
        self._root.locks = 1

    @property
    def num_cached(self) -> int:
        """See `PrefixCache`."""
        return len(self._by_block)

    @property
    def num_evictable(self) -> int:
        """See `PrefixCache`."""
        return len(self._idle)

    def __contains__(self, block: int) -> bool:
        return block in self._by_block

    def match(self, token_ids: Sequence[int], namespace: Namespace) -> list[int]:
        """See `PrefixCache`."""
        chain = self._find(block_keys(token_ids, self.block_size, namespace))
        self._use(chain[-1])
        return [entry.block for entry in chain[1:]]

    def publish(
        self,
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_written: int,
        namespace: Namespace,
    ) -> list[int]:
        """See `PrefixCache`."""
        written = token_ids[: min(num_written, len(block_table) * self.block_size)]
        keys = list(block_keys(written, self.block_size, namespace))
        chain = self._find(keys)
        new = list(block_table[len(chain) - 1 : len(keys)])
        for block in new:
            if block in self._by_block:
                raise InvariantViolation(f"block {block} is indexed already, behind other tokens")
        entry = chain[-1]
        for block, key in zip(new, keys[len(chain) - 1 :], strict=True):
            digest = self._digest(entry, key)
            if digest in self._by_digest:  # of another prefix
                break
            entry = Entry(block, digest, key, entry)
            self._by_digest[digest] = self._by_block[block] = entry
        self._use(entry)
        return [block for block in new if block in self._by_block]

    def lock(self, block: int) -> None:
        """See `PrefixCache`."""
        if block not in self._by_block:
            raise InvariantViolation(f"block {block} is not indexed and cannot be locked")
        self._own_locks[block] += 1
        entry = self._by_block[block]
        entry.locks += 1
        while entry.locks == 1:  # it had none, so its parent is not locked on its behalf
            del self._idle[entry]
            entry = entry.parent
            entry.locks += 1

    def unlock(self, block: int) -> None:
        """See `PrefixCache`."""
        if not self._own_locks[block]:
            raise InvariantViolation(f"block {block} is unlocked more often than locked")
        self._own_locks[block] -= 1
        self._loosen(self._by_block[block])

    def evict(self, count: int) -> list[int]:
        """See `PrefixCache`."""
        evicted: list[int] = []
        while self._idle and len(evicted) < count:
            entry = next(iter(self._idle))
            self._forget(entry)
            evicted.append(entry.block)
        return evicted

    def withdraw(self, block: int) -> list[int]:
        """See `PrefixCache`.

        A flat map has no way down. But what is behind a block was indexed after it, and what is
        withdrawn was indexed a moment ago: there is little to look through.
        """
        if block not in self._by_block:
            return []
        top, later = self._by_block[block], reversed(self._by_block.values())
        gone = {top: None}
        for entry in reversed(list(takewhile(lambda entry: entry is not top, later))):
            if entry.parent in gone:
                gone[entry] = None
        for entry in gone:
            self._forget(entry)
        if top.locks:
            self._loosen(top.parent)
        self._use(top.parent)
        return [entry.block for entry in gone]

    def clear(self) -> list[int]:
        """See `PrefixCache`."""
        return self.evict(self.num_evictable)

    def _find(self, keys: Iterable[Key]) -> list[Entry]:
        """The root, and the entries behind it as far as these keys are cached."""
        chain = [self._root]
        for key in keys:
            found = self._by_digest.get(self._digest(chain[-1], key))
            if found is None or found.parent is not chain[-1] or found.key != key:
                break
            chain.append(found)
        return chain

    def _digest(self, parent: Entry, key: Key) -> bytes:
        before = parent.digest or repr(key[0]).encode()  # a first block's key bears its namespace
        return self._hash(before + self._pack(*key[-self.block_size :]))

    def _use(self, entry: Entry) -> None:
        """Moves a chain to the end of the line, from this entry up."""
        while entry is not self._root:
            if not entry.locks:
                self._idle[entry] = None
                self._idle.move_to_end(entry)
            entry = entry.parent

    def _loosen(self, entry: Entry) -> None:
        """Takes a lock off an entry, and off its parent if it was the last one."""
        entry.locks -= 1
        while not entry.locks:
            self._idle[entry] = None
            entry = entry.parent
            entry.locks -= 1

    def _forget(self, entry: Entry) -> None:
        del self._by_digest[entry.digest], self._by_block[entry.block]
        self._own_locks.pop(entry.block, None)
        self._idle.pop(entry, None)
