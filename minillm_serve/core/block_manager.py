"""Gives sequences their block tables out of the pool."""

from typing import Protocol

from minillm_serve.core.request import Sequence
from minillm_serve.core.swap_space import SwapSpace


class BlockAllocator(Protocol):
    """What a block manager asks of a pool of blocks 0 .. num_blocks-1; `BlockPool` is ours."""

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        ...

    @property
    def num_free(self) -> int:
        """Blocks that nobody references."""
        ...

    def allocate(self, count: int) -> list[int]:
        """Takes `count` free blocks, each with a reference count of 1.

        Raises:
            OutOfBlocks: fewer are free; nothing was taken.
        """
        ...

    def acquire(self, block: int) -> None:
        """Adds a reference to a block that is already referenced."""
        ...

    def release(self, block: int) -> None:
        """Drops a reference; the last one makes the block free.

        Raises:
            InvariantViolation: the block is free already.
        """
        ...

    def ref_count(self, block: int) -> int:
        """How many tables name this block."""
        ...


class BlockManager:
    """Owns every `Sequence.block_table`.

        tokens of a sequence    0 .. P-1 | P .. 2P-1 | 2P .. len-1
        block_table             [   7    ,     2     ,     9      ]   any blocks, in any order
        slot of position i      block_table[i // P] * P + i % P

    Args:
        pool: where blocks come from.
        block_size: tokens a block (P).
        swap_space: host memory for the blocks of preempted sequences, if there is any.
    """

    def __init__(
        self, pool: BlockAllocator, block_size: int, swap_space: SwapSpace | None = None
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size={block_size}: a block holds at least one token")
        self.pool = pool
        self.block_size = block_size
        self.swap_space = swap_space

    @property
    def capacity(self) -> int:
        """Tokens that the whole pool holds."""
        return self.pool.num_blocks * self.block_size

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens: the last one may be partly filled."""
        return -(-num_tokens // self.block_size)

    def num_missing(self, sequence: Sequence, num_tokens: int) -> int:
        """Blocks to add before the table covers the first `num_tokens` positions.

        (And those that were swapped out, however many tokens that is.)
        """
        wanted = self.num_blocks_for(num_tokens)
        if sequence.host_table:
            wanted = max(wanted, len(sequence.host_table))
        return max(0, wanted - len(sequence.block_table))

    def grow(self, sequence: Sequence, num_tokens: int, *, leave: int = 0) -> bool:
        """Makes the table cover the first `num_tokens` positions, entirely or not at all.

        Blocks that were swapped out come back before the next step.

        Args:
            sequence: whose table.
            num_tokens: positions to cover, counted from the sequence's start.
            leave: blocks that must stay free afterwards.

        Returns:
            False, with nothing changed, if the pool has too few free blocks.
        """
        missing = self.num_missing(sequence, num_tokens)
        if not missing:
            return True
        if missing + leave > self.pool.num_free:
            return False
        sequence.block_table.extend(self.pool.allocate(missing))
        if sequence.host_table and self.swap_space is not None:
            self.swap_space.move_in(sequence)
        return True

    def swap_out(self, sequence: Sequence) -> bool:
        """Gives back all blocks of a sequence, copied to the host before the next step.

        Returns:
            False, with nothing changed, if there is no room for them or it would not pay.
        """
        used = sequence.block_table[: self.num_blocks_for(sequence.num_computed)]
        if self.swap_space is None or not self.swap_space.move_out(sequence, used):
            return False
        self._give_back(sequence)
        return True

    def release(self, sequence: Sequence) -> None:
        """Gives back all blocks of a sequence, whose computed tokens are thereby lost."""
        self._give_back(sequence)
        if self.swap_space is not None:
            self.swap_space.discard(sequence)
        sequence.num_computed = 0

    def _give_back(self, sequence: Sequence) -> None:
        # Last block first, so that the pool's stack hands them out again in their old order.
        for block in reversed(sequence.block_table):
            self.pool.release(block)
        sequence.block_table.clear()
