"""The `prefix_cache` slot."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from minillm_serve.core import (
    InvariantViolation,
    MakePrefixCache,
    Namespace,
    PrefixCache,
    RadixPrefixCache,
)
from minillm_serve.parts.part import Part
from minillm_serve.parts.rehearsal import Visit, rehearse, words

HELLO = words(0, 8)
#: Twins, prompts that part inside a run, one that agrees where it should not count, and enough
#: others to evict all of it.
VISITS = (
    Visit(0, HELLO, 3),
    Visit(0, HELLO, 3),
    Visit(1, HELLO + words(1, 5), 6),
    Visit(1, HELLO[:5] + words(2, 6), 8),
    Visit(2, HELLO, 2, cache_salt="a secret"),
    Visit(3, words(3, 4) + HELLO[4:] + words(3, 1), 2),
    Visit(9, words(3, 17), 9),
    Visit(12, HELLO + words(1, 2), 4),
    Visit(14, words(4, 21), 2),
    Visit(30, HELLO, 9),
    Visit(31, words(5, 9), 14),
)


def fit_prefix_cache(part: Part | None, ours: MakePrefixCache | None) -> MakePrefixCache | None:
    """Builds somebody's prefix caches, with an eye on them; without such a part, ours or none.

    Raises:
        PartError: it lacks something of the protocol, or fails its self-test.
    """
    if part is None:
        return ours
    part.check_class()
    part.check_signature(part.value, _built_so, "__init__")
    watched = partial(AuditedPrefixCache, part)
    self_test(watched(2))
    with part.trial("a rehearsal"):
        rehearse(VISITS, prefix_cache=watched, num_blocks=12)
    return watched


def _built_so(block_size: int) -> None:
    """How a prefix cache is built."""


class AuditedPrefixCache:
    """Somebody's prefix cache, with ours beside it, which forgets whatever theirs forgets.

    So it is known at any time what theirs may say. It may find less than there is; whatever else
    it does wrong is named where it does it.

    Raises:
        PartError: from every method, if the cache raises what it should not or gives what is wrong.
    """

    def __init__(self, part: Part, block_size: int) -> None:
        self.block_size = block_size
        self._part = part
        self._books = RadixPrefixCache(block_size)
        with part.blame("__init__"):
            self._cache = part.value(block_size)
        part.check_methods(self._cache, PrefixCache)
        self._check_counts("when it is new")

    @property
    def num_cached(self) -> int:
        """See `PrefixCache`."""
        return self._books.num_cached

    @property
    def num_evictable(self) -> int:
        """See `PrefixCache`."""
        return self._books.num_evictable

    def __contains__(self, block: int) -> bool:
        with self._part.blame(f"{block} in it"):
            told = block in self._cache
        known = block in self._books
        self._part.expect(told == known, f"says {told} to `{block} in` it, expected {known}")
        return known

    def match(self, token_ids: Sequence[int], namespace: Namespace) -> list[int]:
        """See `PrefixCache`."""
        call = f"match of {len(token_ids)} tokens"
        with self._part.blame(call):
            told = self._cache.match(token_ids, namespace)
        self._check_list(told, call)
        known = self._books.match(token_ids, namespace)
        for index, block in enumerate(told):
            if known[index : index + 1] != [block]:
                found = self._verdict(block, known[index : index + 1])
                raise self._part.error(f"returned {told} from a {call}: {found}")
        self._check_counts(f"after a {call}")
        return list(told)

    def publish(
        self,
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_written: int,
        namespace: Namespace,
    ) -> list[int]:
        """See `PrefixCache`."""
        call = f"publish({len(token_ids)} tokens, {list(block_table)}, {num_written})"
        ask = partial(self._cache.publish, token_ids, block_table, num_written, namespace)
        try:
            new = self._books.publish(token_ids, block_table, num_written, namespace)
        except InvariantViolation as error:
            self._must_refuse(call, ask, error)
            raise
        with self._part.blame(call):
            told = ask()
        self._check_list(told, call)
        right = told == new[: len(told)]
        self._part.expect(right, f"returned {told} from {call}, expected {new}, or fewer of them")
        if len(told) < len(new):
            self._books.withdraw(new[len(told)])
        self._check_counts(f"after {call}")
        return list(told)

    def lock(self, block: int) -> None:
        """See `PrefixCache`."""
        self._change("lock", block)

    def unlock(self, block: int) -> None:
        """See `PrefixCache`."""
        self._change("unlock", block)

    def evict(self, count: int) -> list[int]:
        """See `PrefixCache`."""
        return self._evict(f"evict({count})", count)

    def withdraw(self, block: int) -> list[int]:
        """See `PrefixCache`."""
        call = f"withdraw({block})"
        with self._part.blame(call):
            told = self._cache.withdraw(block)
        self._check_list(told, call)
        known = self._books.withdraw(block)
        right = sorted(told) == sorted(known)
        self._part.expect(right, f"returned {told} from {call}, expected {known}")
        self._check_counts(f"after {call}")
        return list(told)

    def clear(self) -> list[int]:
        """See `PrefixCache`."""
        return self._evict("clear()", self._books.num_evictable)

    def _evict(self, call: str, count: int) -> list[int]:
        expected = min(count, self._books.num_evictable)
        with self._part.blame(call):
            told = self._cache.clear() if call == "clear()" else self._cache.evict(count)
        self._check_list(told, call)
        for block in told:
            self._check_evicted(block, call)
        self._part.expect(
            len(told) == expected, f"returned {told} from {call}, expected {expected} blocks"
        )
        self._check_counts(f"after {call}")
        return list(told)

    def _check_evicted(self, block: int, call: str) -> None:
        """Forgets the block in our books as well, where it must be a leaf that nobody locks."""
        evictable = self._books.num_evictable
        gone = self._books.withdraw(block)
        said = f"returned block {block} from {call}"
        self._part.expect(block in gone, f"{said}, which it did not index")
        self._part.expect(len(gone) == 1, f"{said} before those behind it: {gone[1:]}")
        unlocked = self._books.num_evictable == evictable - 1
        self._part.expect(unlocked, f"{said}, which is locked")

    def _change(self, method: str, block: int) -> None:
        call, ask = f"{method}({block})", partial(getattr(self._cache, method), block)
        try:
            getattr(self._books, method)(block)
        except InvariantViolation as error:
            self._must_refuse(call, ask, error)
            raise
        with self._part.blame(call):
            ask()
        self._check_counts(f"after {call}")

    def _must_refuse(self, call: str, ask: Any, error: InvariantViolation) -> None:
        """Whoever called so is at fault, and must be told so."""
        with suppress(InvariantViolation), self._part.blame(call, InvariantViolation):
            ask()
            raise self._part.error(f"accepted {call}, expected InvariantViolation: {error}")

    def _verdict(self, block: int, known: list[int]) -> str:
        if block not in self._books:
            return f"block {block} is not indexed (any more)"
        wanted = f"is in block {known[0]}" if known else "has not been published"
        return f"block {block} holds something else, and what was asked for {wanted}"

    def _check_list(self, told: object, call: str) -> None:
        is_list = isinstance(told, list) and all(isinstance(block, int) for block in told)
        self._part.expect(is_list, f"returned {told!r} from {call}, expected a list of block ids")

    def _check_counts(self, when: str) -> None:
        for name in ("num_cached", "num_evictable"):
            with self._part.blame(name):
                told = getattr(self._cache, name)
            known = getattr(self._books, name)
            self._part.expect(told == known, f"has {name} {told!r} {when}, expected {known}")


def self_test(cache: AuditedPrefixCache) -> None:
    """Every method on a few chains of 2-token blocks; the audit sees what goes wrong.

    Raises:
        PartError: naming the call and what it should have done.
    """
    space, other = Namespace(salt="x"), Namespace(adapter="x")
    first, fork, turned = [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8], [5, 6, 3, 4, 1, 2]

    def look() -> None:
        for tokens in (first, fork, turned, first[:3], fork[2:], [1, 9]):
            for namespace in (space, other, Namespace()):
                cache.match(tokens, namespace)

    cache.publish(first, [0, 1, 2], 5, space)
    look()
    cache.publish(first, [0, 1, 2], 6, space)
    held = [block for block in (2, 1, 1) if block in cache]
    for block in held:
        cache.lock(block)
    cache.publish(fork, [0, 1, 3], 6, space)  # a run is cut in two, of which one part is locked
    cache.publish(turned, [4, 5, 6], 6, space)
    cache.publish(first, [7, 8, 9], 6, other)
    look()
    cache.evict(2)
    cache.evict(9)
    look()
    for block in held:
        cache.unlock(block)
    _ask_what_must_be_refused(cache, space)
    for block in cache.evict(1):
        cache.publish(turned, [block], 2, space)  # it holds something else from now on
        look()
    cache.publish(first, [10, 11, 12], 6, space)
    for block in (11, 12, 0):
        cache.withdraw(block)
        look()
    cache.publish(fork, [13, 14, 15], 6, other)
    cache.clear()
    look()


def _ask_what_must_be_refused(cache: AuditedPrefixCache, namespace: Namespace) -> None:
    with suppress(InvariantViolation):
        cache.lock(99)
    with suppress(InvariantViolation):
        cache.unlock(0)
    if 0 in cache:
        with suppress(InvariantViolation):
            cache.publish([9, 9], [0], 2, namespace)
