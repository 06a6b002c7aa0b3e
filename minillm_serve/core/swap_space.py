"""Host memory for the KV of preempted sequences, and whether it pays to use it."""

from collections.abc import Callable
from dataclasses import dataclass

from minillm_serve.core.batch import Swap
from minillm_serve.core.block_pool import BlockPool
from minillm_serve.core.request import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryCost:
    """Seconds until a preempted sequence of L tokens has its KV again, in either way.

        recompute  (flops_per_token * L  +  flops_per_pair * L (L + 1) / 2) / flops_s
        swap       2 * (latency_s  +  blocks * block_bytes / host_bytes_s)

    Tokens that are computed again ride along in steps that read the weights anyway, so that only
    their arithmetic counts. Blocks cross the bus twice. A long context favours the swap, since
    attention grows with the square of L; many bytes a token (no grouped heads, a slow bus) favour
    computing again.

    Attributes:
        flops_per_token: of all matrix products with weights.
        flops_per_pair: of attention, for each pair of a query and a key before it.
        flops_s: that the device reaches, a second.
        block_bytes: keys and values of all layers in one block.
        host_bytes_s: that cross the bus, a second.
        latency_s: before the first of them does; about what it takes to start two copies.
    """

    flops_per_token: float
    flops_per_pair: float
    flops_s: float
    block_bytes: float
    host_bytes_s: float
    latency_s: float = 20e-6

    def recompute_seconds(self, num_tokens: int) -> float:
        """Time to compute so many tokens again."""
        pairs = num_tokens * (num_tokens + 1) / 2
        flops = self.flops_per_token * num_tokens + self.flops_per_pair * pairs
        return flops / self.flops_s

    def swap_seconds(self, num_blocks: int) -> float:
        """Time to copy so many blocks out, and in again."""
        return 2 * (self.latency_s + num_blocks * self.block_bytes / self.host_bytes_s)

    def swap_is_cheaper(self, num_tokens: int, num_blocks: int) -> bool:
        """Whether a sequence of so many computed tokens, in so many blocks, is better copied."""
        return self.swap_seconds(num_blocks) < self.recompute_seconds(num_tokens)


def always(num_tokens: int, num_blocks: int) -> bool:
    """Swaps whenever there is room."""
    return True


class SwapSpace:
    """Gives out blocks of host memory, and notes what is to be copied before the next step.

    Every step copies out first, then in. So what was copied out gives its block of the pool away at
    once, even to somebody who comes in by the same step; but what comes in keeps its block of the
    host until that step has been put together (`take`).

    Args:
        num_blocks: blocks of host memory, as large as the pool's.
        pays: told computed tokens and blocks, whether to swap rather than compute again.
    """

    def __init__(self, num_blocks: int, pays: Callable[[int, int], bool] = always) -> None:
        self.pool = BlockPool(num_blocks)
        self.pays = pays
        self._out: dict[Sequence, Swap] = {}
        self._in: dict[Sequence, Swap] = {}
        self._vacated: list[int] = []

    @property
    def vacated(self) -> tuple[int, ...]:
        """Blocks of the host that are free as soon as the next step has been put together."""
        return tuple(self._vacated)

    def move_out(self, sequence: Sequence, blocks: list[int]) -> bool:
        """Gives these blocks of a sequence a place on the host; False if they had better be lost.

        (Blocks that the next step is still to copy in hold nothing yet that could be copied out.)
        """
        count = len(blocks)
        if not count or count > self.pool.num_free or sequence in self._in:
            return False
        if not self.pays(sequence.num_computed, count):
            return False
        sequence.host_table = self.pool.allocate(count)
        self._out[sequence] = Swap(sequence, tuple(zip(blocks, sequence.host_table, strict=True)))
        return True

    def move_in(self, sequence: Sequence) -> None:
        """Has a sequence's blocks copied back into the first blocks of its table."""
        moves = tuple(zip(sequence.host_table, sequence.block_table, strict=False))
        self._in[sequence] = Swap(sequence, moves)
        self._vacated += sequence.host_table
        sequence.host_table = []

    def discard(self, sequence: Sequence) -> None:
        """Forgets everything that was kept or planned for a sequence."""
        self._out.pop(sequence, None)
        self._in.pop(sequence, None)
        for block in sequence.host_table:
            self.pool.release(block)
        sequence.host_table = []

    def take(self) -> tuple[tuple[Swap, ...], tuple[Swap, ...]]:
        """The copies, out and in, that belong to the step which has just been put together."""
        out, back = tuple(self._out.values()), tuple(self._in.values())
        self._out.clear()
        self._in.clear()
        for block in self._vacated:
            self.pool.release(block)
        self._vacated.clear()
        return out, back
