"""What a block manager asks of a prefix cache."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from minillm_serve.core.prefix.namespace import Namespace


class PrefixCache(Protocol):
    """An index from beginnings of token sequences to the blocks that hold their KV.

    It knows block ids and tokens, and neither the pool nor the memory: whoever keeps it holds a
    reference of the pool on every indexed block, from `publish` until the block is returned by
    `evict`, `withdraw` or `clear`.

        tokens     the cat sat on | the mat and then | it went      (P = 4)
        chain         block 7    ->     block 2         fills no block, so it is not indexed

    Where tokens differ, chains fork: the blocks make a tree. A block is *locked* while somebody
    needs it, or one behind it; all others are evictable, leaves first. A chain is *used* when it is
    matched, published or unlocked, and the leaf whose last use is longest ago is evicted first.

    It is built with `block_size`, the tokens a block (P).
    """

    @property
    def num_cached(self) -> int:
        """Indexed blocks."""
        ...

    @property
    def num_evictable(self) -> int:
        """Indexed blocks that are not locked: so many could be evicted."""
        ...

    def __contains__(self, block: int) -> bool:
        """Whether a block is indexed."""
        ...

    def match(self, token_ids: Sequence[int], namespace: Namespace) -> list[int]:
        """The blocks of the longest cached beginning of these tokens, whole blocks only, in order.

        (Whoever asks leaves out the last token of a prompt. It must be computed in any case:
        nothing can be sampled after it otherwise.)
        """
        ...

    def publish(
        self,
        token_ids: Sequence[int],
        block_table: Sequence[int],
        num_written: int,
        namespace: Namespace,
    ) -> list[int]:
        """Indexes a sequence's blocks, as far as all their tokens are written.

        What is cached already, maybe in other blocks, stays as it is; new blocks go behind it.

        Args:
            token_ids: of the sequence, from its start.
            block_table: its blocks.
            num_written: so many tokens, from the start, have their KV in these blocks.
            namespace: of the sequence.

        Returns:
            The blocks that are new in the index, in order; nobody locks them yet.

        Raises:
            InvariantViolation: a block is indexed already, behind other tokens.
        """
        ...

    def lock(self, block: int) -> None:
        """Keeps a block, and all before it on its chain, until as many `unlock`s have come.

        Raises:
            InvariantViolation: the block is not indexed.
        """
        ...

    def unlock(self, block: int) -> None:
        """Undoes one `lock` of this very block.

        Raises:
            InvariantViolation: there is none.
        """
        ...

    def evict(self, count: int) -> list[int]:
        """Forgets up to `count` evictable blocks, leaf by leaf, and returns them in that order."""
        ...

    def withdraw(self, block: int) -> list[int]:
        """Forgets a block and everything behind it, locked or not: its KV was never written.

        Their locks are gone with them. The chain before it counts as used.

        Returns:
            The blocks that are forgotten, this one first; none if it was not indexed.
        """
        ...

    def clear(self) -> list[int]:
        """Forgets, and returns, every block that is not locked."""
        ...


MakePrefixCache: TypeAlias = Callable[[int], PrefixCache]
