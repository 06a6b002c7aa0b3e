"""Random calls to a prefix cache, each answered as the model answers it."""

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from minillm_serve.core import InvariantViolation, MakePrefixCache, Namespace
from tests.core.machine import CountingMachine
from tests.core.prefix.model import PrefixModel

# Few tokens, and names that say the same under other fields: whoever mixes them up meets himself.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12)
SPACES = st.sampled_from([Namespace(), Namespace(salt="x"), Namespace(adapter="x")])
NUM_BLOCKS = 20


class CacheMachine(CountingMachine):
    """Does what a block manager does, and some things that none should."""

    make: ClassVar[MakePrefixCache]

    @initialize(block_size=st.integers(1, 3))
    def start(self, block_size):
        self.cache, self.model = self.make(block_size), PrefixModel(block_size)
        self.free = list(range(NUM_BLOCKS))

    @rule(tokens=TOKENS, namespace=SPACES)
    def match(self, tokens, namespace):
        assert self.cache.match(tokens, namespace) == self.model.match(tokens, namespace)

    @rule(tokens=TOKENS, namespace=SPACES, written=st.integers(0, 12), data=st.data())
    def publish(self, tokens, namespace, written, data):
        shared = self.cache.match(tokens, namespace)
        assert shared == self.model.match(tokens, namespace)
        # Somebody who came before the others had published has blocks of his own.
        table = shared[: data.draw(st.integers(0, len(shared)))]
        missing = len(tokens) // self.cache.block_size - len(table)
        if missing > len(self.free):
            return
        table += [self.free.pop() for _ in range(missing)]
        new = self.cache.publish(tokens, table, written, namespace)
        assert new == self.model.publish(tokens, table, written, namespace)
        self.free += [block for block in table if block not in self.cache]

    @precondition(lambda self: self.model.block_of)
    @rule(data=st.data())
    def lock(self, data):
        block = self.draw_cached(data)
        self.cache.lock(block)
        self.model.lock(block)

    @precondition(lambda self: self.model.block_of)
    @rule(data=st.data())
    def unlock(self, data):
        held = [b for b, prefix in self.model.prefix_of.items() if self.model.locks[prefix]]
        block = data.draw(st.sampled_from(held)) if held else self.draw_cached(data)
        if held:
            self.cache.unlock(block)
            self.model.unlock(block)
        else:
            with pytest.raises(InvariantViolation, match=f"block {block} "):
                self.cache.unlock(block)

    @rule(count=st.integers(0, 4))
    def evict(self, count):
        evicted = self.cache.evict(count)
        assert evicted == self.model.evict(count)
        self.free += evicted

    @precondition(lambda self: self.model.block_of)
    @rule(data=st.data())
    def withdraw(self, data):
        block = self.draw_cached(data)
        gone = self.cache.withdraw(block)
        assert gone[0] == block
        assert sorted(gone) == sorted(self.model.withdraw(block))
        self.free += gone

    @precondition(lambda self: self.cache.num_cached > 6)
    @rule()
    def clear(self):
        gone = self.cache.clear()
        assert gone == self.model.evict(NUM_BLOCKS)
        self.free += gone

    def draw_cached(self, data):
        return data.draw(st.sampled_from(list(self.model.prefix_of)))

    @invariant()
    def the_books_agree(self):
        if hasattr(self, "cache"):
            cached = set(self.model.prefix_of)
            assert {block for block in range(NUM_BLOCKS) if block in self.cache} == cached
            assert self.cache.num_cached == len(cached)
            assert self.cache.num_evictable == len(self.model.evictable())
            assert sorted(self.free) == sorted(set(range(NUM_BLOCKS)) - cached)

    def teardown(self):
        if hasattr(self, "cache"):
            for namespace, tokens in list(self.model.block_of):
                self.match(tokens, namespace)
            for prefix, number in self.model.locks.items():
                for _ in range(number):
                    self.cache.unlock(self.model.block_of[prefix])
            self.model.locks.clear()
            gone = self.cache.clear()
            assert sorted(gone) == sorted(self.model.prefix_of)
            assert (self.cache.num_cached, self.cache.num_evictable) == (0, 0)
