"""The pool, alone and under a random user."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from minillm_serve.core import BlockPool, InvariantViolation, OutOfBlocks
from tests.core.machine import STEPS, CountingMachine, run_machine


def test_a_pool_hands_out_each_block_once():
    pool = BlockPool(5)
    assert sorted(pool.allocate(5)) == [0, 1, 2, 3, 4]
    assert pool.num_free == 0


def test_asking_for_too_many_blocks_takes_none_b10():
    pool = BlockPool(3)
    (taken,) = pool.allocate(1)
    with pytest.raises(OutOfBlocks, match="3 blocks asked for, 2 free"):
        pool.allocate(3)
    assert pool.num_free == 2
    assert [pool.ref_count(b) for b in range(3)] == [int(b == taken) for b in range(3)]


def test_a_shared_block_is_free_after_its_last_release():
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.acquire(block)
    pool.release(block)
    assert pool.num_free == 0
    pool.release(block)
    assert pool.num_free == 1


def test_a_double_free_is_a_fault():
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.release(block)
    with pytest.raises(InvariantViolation, match=f"block {block} was released"):
        pool.release(block)


def test_a_free_block_cannot_be_shared():
    with pytest.raises(InvariantViolation, match="block 1 is free"):
        BlockPool(2).acquire(1)


@pytest.mark.parametrize("count", [0, -3])
def test_a_pool_without_blocks_is_refused(count):
    with pytest.raises(ValueError, match=f"num_blocks={count}"):
        BlockPool(count)


class PoolMachine(CountingMachine):
    """A user who takes, shares and gives back blocks at random, and keeps books of their own."""

    @initialize(num_blocks=st.integers(1, 12))
    def start(self, num_blocks):
        self.pool = BlockPool(num_blocks)
        self.counts = dict.fromkeys(range(num_blocks), 0)

    @rule(count=st.integers(0, 14))
    def allocate(self, count):
        free = sum(c == 0 for c in self.counts.values())
        if count > free:
            with pytest.raises(OutOfBlocks):
                self.pool.allocate(count)
            return
        taken = self.pool.allocate(count)
        assert len(set(taken)) == count
        for block in taken:
            assert self.counts[block] == 0
            self.counts[block] = 1

    @precondition(lambda self: any(self.counts.values()))
    @rule(data=st.data())
    def share(self, data):
        block = data.draw(st.sampled_from([b for b, c in self.counts.items() if c]))
        self.pool.acquire(block)
        self.counts[block] += 1

    @precondition(lambda self: any(self.counts.values()))
    @rule(data=st.data())
    def release(self, data):
        block = data.draw(st.sampled_from([b for b, c in self.counts.items() if c]))
        self.pool.release(block)
        self.counts[block] -= 1

    @invariant()
    def the_books_agree(self):
        if hasattr(self, "pool"):
            assert {b: self.pool.ref_count(b) for b in self.counts} == self.counts
            assert self.pool.num_free == sum(c == 0 for c in self.counts.values())


def test_the_pool_keeps_its_books_through_10_000_random_steps():
    assert run_machine(PoolMachine) >= STEPS
