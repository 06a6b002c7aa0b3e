"""A fixed number of KV blocks: reference counts, a free list, nothing else."""

from typing import Protocol

from minillm_serve.core.errors import InvariantViolation, OutOfBlocks


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
        """How many tables, and how many indexes, name this block."""
        ...


class BlockPool:
    """Hands out block ids 0 .. num_blocks-1.

    A block is free (count 0, on the free list) or referenced (count = number of block tables
    that name it, and one if the prefix cache does). The block's memory is somebody else's business:
    the pool only counts.

    Args:
        num_blocks: how many blocks there are; at least 1.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks={num_blocks}: the pool needs at least one block")
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        # A stack: the block freed last, whose memory is likeliest in a cache, goes out first.
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Blocks that nobody references."""
        return len(self._free)

    def ref_count(self, block: int) -> int:
        """How many tables name this block."""
        return self._ref_counts[block]

    def allocate(self, count: int) -> list[int]:
        """Takes `count` free blocks, each with a reference count of 1.

        Raises:
            OutOfBlocks: fewer are free; nothing was taken.
        """
        if count < 0:
            raise ValueError(f"count={count}: expected 0 or more blocks")
        if count > len(self._free):
            raise OutOfBlocks(f"{count} blocks asked for, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._ref_counts[block] = 1
        return taken

    def acquire(self, block: int) -> None:
        """Adds a reference to a block that is already referenced."""
        if self._ref_counts[block] < 1:
            raise InvariantViolation(f"block {block} is free and cannot be shared")
        self._ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Drops a reference; the last one puts the block back on the free list.

        Raises:
            InvariantViolation: the block is free already (a double free).
        """
        if self._ref_counts[block] < 1:
            raise InvariantViolation(f"block {block} was released more often than referenced")
        self._ref_counts[block] -= 1
        if self._ref_counts[block] == 0:
            self._free.append(block)
