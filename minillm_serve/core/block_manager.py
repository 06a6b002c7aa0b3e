"""Gives sequences their block tables out of the pool."""

from dataclasses import replace

from minillm_serve.core.batch import Batch, Copy
from minillm_serve.core.block_pool import BlockAllocator
from minillm_serve.core.prefix.namespace import Namespace
from minillm_serve.core.prefix.protocol import PrefixCache
from minillm_serve.core.request import FinishReason, Sequence, SequenceStatus
from minillm_serve.core.sharing import PrefixStats, SharedBlocks
from minillm_serve.core.swap_space import SwapSpace


class BlockManager:
    """Owns every `Sequence.block_table`.

        tokens of a sequence    0 .. P-1 | P .. 2P-1 | 2P .. len-1
        block_table             [   7    ,     2     ,     9      ]   any blocks, in any order
        slot of position i      block_table[i // P] * P + i % P

    Blocks may be shared: by sequences that begin with the same tokens, if there is a prefix cache,
    and by siblings. Whoever is about to write to a shared block gets a copy of its own first.

    Args:
        pool: where blocks come from.
        block_size: tokens a block (P).
        swap_space: host memory for the blocks of preempted sequences, if there is any.
        prefix_cache: knows which blocks hold the beginnings of sequences, if there is one.
        namespace: what else must be the same for two blocks to be the same.
    """

    def __init__(
        self,
        pool: BlockAllocator,
        block_size: int,
        swap_space: SwapSpace | None = None,
        prefix_cache: PrefixCache | None = None,
        namespace: Namespace = Namespace(),  # noqa: B008, it is immutable
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size={block_size}: a block holds at least one token")
        self.pool = pool
        self.block_size = block_size
        self.swap_space = swap_space
        self.shared = SharedBlocks(pool, block_size, prefix_cache, namespace)
        self._copies: dict[Sequence, Copy] = {}

    @property
    def capacity(self) -> int:
        """Tokens that the whole pool holds."""
        return self.pool.num_blocks * self.block_size

    @property
    def num_available(self) -> int:
        """Blocks that are free, or would be if the prefix cache forgot all that nobody uses."""
        return self.pool.num_free + self.shared.num_evictable

    @property
    def num_used(self) -> int:
        """Blocks that sequences name; those that several name count once."""
        return self.pool.num_blocks - self.num_available

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Blocks to copy in the next step. Nobody may have the sources before that."""
        return tuple(self._copies.values())

    @property
    def stats(self) -> PrefixStats:
        """What sharing is good for so far."""
        shared = self.shared
        return PrefixStats(
            shared.queries, shared.hits, self.num_used, shared.num_evictable, shared.num_evicted
        )

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens: the last one may be partly filled."""
        return -(-num_tokens // self.block_size)

    def num_missing(self, sequence: Sequence, num_tokens: int) -> int:
        """Blocks to take before the sequence may write up to its first `num_tokens` positions.

        (And those that were swapped out, however many tokens that is.)
        """
        wanted = self.num_blocks_for(num_tokens)
        if sequence.host_table:
            wanted = max(wanted, len(sequence.host_table))
        return max(0, wanted - len(sequence.block_table)) + self._must_copy(sequence)

    def begin(self, sequence: Sequence, *, leave: int = 0) -> bool:
        """Lets a waiting sequence in: covers all tokens that it has, entirely or not at all.

        What is there already, it shares: its tokens then count as computed, except the last, which
        is computed in any case. It is looked up now, and never kept for those who still wait.

        Args:
            sequence: holds no blocks.
            leave: blocks that must stay available afterwards.

        Returns:
            False, with nothing changed, if too few blocks are available.
        """
        cached = 0 if sequence.host_table else self._share(sequence)
        if not self.grow(sequence, len(sequence), leave=leave):
            if not sequence.host_table:
                self._give_back(sequence)
                sequence.num_computed = 0
            return False
        if sequence.index == sequence.num_preemptions == 0:
            self.shared.count(sequence, cached)
        return True

    def grow(self, sequence: Sequence, num_tokens: int, *, leave: int = 0) -> bool:
        """Makes the table cover the first `num_tokens` positions, entirely or not at all.

        Blocks that were swapped out come back before the next step. A block that it shares, and is
        to write to, is copied before the next step.

        Args:
            sequence: whose table.
            num_tokens: positions to cover, counted from the sequence's start.
            leave: blocks that must stay available afterwards.

        Returns:
            False, with nothing changed, if too few blocks are available.
        """
        missing = self.num_missing(sequence, num_tokens)
        if not missing:
            return True
        if missing + leave > self.num_available:
            return False
        self.shared.make_free(missing)
        blocks = self.pool.allocate(missing)
        if self._must_copy(sequence):
            self._copy(sequence, blocks.pop(0))
        sequence.block_table.extend(blocks)
        if sequence.host_table and self.swap_space is not None:
            self.swap_space.move_in(sequence)
        return True

    def extend(self, sequence: Sequence, num_tokens: int) -> None:
        """Further blocks behind those that `grow` has granted for this step: for drafts.

        Nothing is copied any more. What the sequence is to write to is its own by now, and is in
        others' tables, or in the prefix cache, only for what this very step writes there.

        Raises:
            OutOfBlocks: too few are available.
        """
        missing = self.num_blocks_for(num_tokens) - len(sequence.block_table)
        if missing > 0:
            self.shared.make_free(missing)
            sequence.block_table.extend(self.pool.allocate(missing))

    def trim(self, sequence: Sequence) -> None:
        """Gives back the blocks behind a sequence's last token: drafts were there, and wrong."""
        table, wanted = sequence.block_table, self.num_blocks_for(len(sequence))
        while len(table) > wanted:
            self.pool.release(table.pop())

    def promise(self, sequence: Sequence, num_tokens: int) -> None:
        """Lets others share what the next step writes of a sequence, up to so many tokens."""
        self.shared.promise(sequence, num_tokens)

    def complete(self, batch: Batch) -> Batch:
        """The step that has just been put together, with all copies that it needs before."""
        copies = self.copies
        swaps = self.swap_space.take() if self.swap_space is not None else ((), ())
        if not (copies or any(swaps)):
            return batch
        self._copies.clear()
        for copy in copies:
            self.pool.release(copy.source)
        return replace(batch, swap_out=swaps[0], copies=copies, swap_in=swaps[1])

    def swap_out(self, sequence: Sequence) -> bool:
        """Gives back all blocks of a sequence, copied to the host before the next step.

        Returns:
            False, with nothing changed, if there is no room for them or it would not pay.
        """
        used = sequence.block_table[: self.num_blocks_for(sequence.num_computed)]
        if self.swap_space is None or not self.swap_space.move_out(sequence, used):
            return False
        self._publish(sequence)
        self._give_back(sequence)
        return True

    def release(self, sequence: Sequence) -> None:
        """Gives back all blocks of a sequence, whose computed tokens are thereby lost.

        (Those whose steps are done may be found in the prefix cache, until it needs the room.)
        """
        self._publish(sequence)
        self._give_back(sequence)
        if self.swap_space is not None:
            self.swap_space.discard(sequence)
        sequence.num_computed = 0

    def _share(self, sequence: Sequence) -> int:
        """Names all blocks that hold what the sequence begins with; tells how many were cached."""
        blocks = self.shared.match(sequence)
        cached = num_tokens = len(blocks) * self.block_size
        depth, parent, fork = len(blocks), sequence.parent, sequence.num_prompt_tokens - 1
        if parent is not None and _has_read(parent) and fork > num_tokens:
            blocks, num_tokens = parent.block_table[: self.num_blocks_for(fork)], fork
            depth = min(self.shared.depth(parent), fork // self.block_size)
        for block in blocks:
            self.pool.acquire(block)
        sequence.block_table.extend(blocks)
        sequence.num_computed = num_tokens
        self.shared.hold(sequence, depth)
        return cached

    def _must_copy(self, sequence: Sequence) -> bool:
        """Whether the block that it writes to next is named by somebody else, too."""
        where = sequence.num_computed // self.block_size
        table = sequence.block_table
        return where < len(table) and self.pool.ref_count(table[where]) > 1

    def _copy(self, sequence: Sequence, target: int) -> None:
        where = sequence.num_computed // self.block_size
        # Its reference of the source is kept until the step has been put together.
        self._copies[sequence] = Copy(sequence, sequence.block_table[where], target)
        sequence.block_table[where] = target

    def _publish(self, sequence: Sequence) -> None:
        """Leaves what is written of a sequence to others."""
        if sequence.num_written > 0 and sequence.finish_reason is not FinishReason.ERROR:
            self.shared.publish(sequence, sequence.num_written)

    def _give_back(self, sequence: Sequence) -> None:
        self.shared.hold(sequence, 0)
        if (copy := self._copies.pop(sequence, None)) is not None:
            self.pool.release(copy.source)
        # Last block first, so that the pool's stack hands them out again in their old order.
        for block in reversed(sequence.block_table):
            self.pool.release(block)
        sequence.block_table.clear()
        sequence.num_written = 0


def _has_read(sequence: Sequence) -> bool:
    """Whether the KV of its whole prompt is there, for certain."""
    return (
        sequence.status is SequenceStatus.RUNNING
        and sequence.num_written >= sequence.num_prompt_tokens
    )
