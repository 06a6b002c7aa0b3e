"""Block tables, under sequences that grow and go at random."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from minillm_serve.core import BlockManager, BlockPool, Request, Sequence
from tests.core.machine import STEPS, CountingMachine, run_machine


def make_sequence(num_tokens: int = 1) -> Sequence:
    return Sequence(Request(request_id="r", prompt_token_ids=(1,) * num_tokens))


def test_a_table_grows_only_at_block_borders():
    manager = BlockManager(BlockPool(4), block_size=4)
    sequence = make_sequence()
    lengths = []
    for num_tokens in range(1, 10):
        assert manager.grow(sequence, num_tokens)
        lengths.append(len(sequence.block_table))
    assert lengths == [1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_a_failed_growth_changes_nothing_b10_b11():
    manager = BlockManager(BlockPool(4), block_size=4)
    first, second = make_sequence(), make_sequence()
    assert manager.grow(first, 12)
    assert manager.grow(second, 4)
    table = list(first.block_table)
    assert not manager.grow(first, 13)
    assert first.block_table == table
    assert manager.pool.num_free == 0
    manager.release(first)
    manager.release(second)
    assert manager.pool.num_free == 4


def test_growth_within_the_last_block_needs_no_free_block():
    manager = BlockManager(BlockPool(1), block_size=4)
    sequence = make_sequence()
    assert manager.grow(sequence, 1)
    assert manager.grow(sequence, 4, leave=1)


def test_blocks_that_must_stay_free_stay_free():
    manager = BlockManager(BlockPool(3), block_size=1)
    assert not manager.grow(make_sequence(), 2, leave=2)
    assert manager.grow(make_sequence(), 1, leave=2)


def test_a_released_sequence_has_nothing_computed():
    manager = BlockManager(BlockPool(3), block_size=4)
    sequence = make_sequence(8)
    manager.grow(sequence, 8)
    sequence.num_computed = 8
    manager.release(sequence)
    assert (sequence.block_table, sequence.num_computed) == ([], 0)


@pytest.mark.parametrize("size", [0, -1])
def test_a_block_size_below_one_is_refused(size):
    with pytest.raises(ValueError, match=f"block_size={size}"):
        BlockManager(BlockPool(1), size)


class ManagerMachine(CountingMachine):
    @initialize(num_blocks=st.integers(1, 16), block_size=st.sampled_from([1, 2, 3, 4, 16]))
    def start(self, num_blocks, block_size):
        self.manager = BlockManager(BlockPool(num_blocks), block_size)
        self.sequences = []

    @rule()
    def newcomer(self):
        self.sequences.append(make_sequence())

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), more=st.integers(1, 20), leave=st.integers(0, 3))
    def grow(self, data, more, leave):
        sequence = data.draw(st.sampled_from(self.sequences))
        before, free = list(sequence.block_table), self.manager.pool.num_free
        wanted = len(before) * self.manager.block_size + more
        grown = self.manager.grow(sequence, wanted, leave=leave)
        missing = -(-wanted // self.manager.block_size) - len(before)
        assert grown == (missing + leave <= free)
        assert sequence.block_table[: len(before)] == before
        assert len(sequence.block_table) == len(before) + (missing if grown else 0)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def release(self, data):
        sequence = data.draw(st.sampled_from(self.sequences))
        self.manager.release(sequence)
        self.sequences.remove(sequence)

    @invariant()
    def every_block_has_one_owner_or_none(self):
        if hasattr(self, "manager"):
            pool = self.manager.pool
            named = [b for s in self.sequences for b in s.block_table]
            assert len(named) == len(set(named))
            assert pool.num_free + len(named) == pool.num_blocks
            assert all(pool.ref_count(b) == (b in named) for b in range(pool.num_blocks))


def test_tables_and_pool_agree_through_10_000_random_steps():
    assert run_machine(ManagerMachine) >= STEPS
