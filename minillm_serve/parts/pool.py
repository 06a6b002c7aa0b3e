"""The `block_pool` slot."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from minillm_serve.core import BlockAllocator, BlockPool, InvariantViolation, OutOfBlocks
from minillm_serve.parts.part import Part
from minillm_serve.parts.rehearsal import rehearse


def fit_block_pool(part: Part | None) -> Callable[[int], BlockAllocator]:
    """Builds somebody's pools, with an eye on them; ours if there is no such part.

    Raises:
        PartError: it lacks something of the protocol, or fails its self-test.
    """
    if part is None:
        return BlockPool
    part.check_class()
    part.check_signature(part.value, BlockPool, "__init__")
    self_test(AuditedPool(part, 4))
    with part.trial("a rehearsal"):
        rehearse(pool=lambda num_blocks: AuditedPool(part, num_blocks))
    return lambda num_blocks: AuditedPool(part, num_blocks)


class AuditedPool:
    """Somebody's pool, with books kept beside its own: a mistake is named where it is made.

    Raises:
        PartError: from every method, if the pool raises what it should not or miscounts.
    """

    def __init__(self, part: Part, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._part = part
        self._counts = Counter[int]()  # of the blocks that are referenced
        with part.blame("__init__"):
            self._pool = part.value(num_blocks)
        part.check_methods(self._pool, BlockAllocator)
        told = self._pool.num_blocks
        part.expect(told == num_blocks, f"has num_blocks {told!r}, expected {num_blocks}")
        self._check_free(f"in a new pool of {num_blocks} blocks")

    @property
    def num_free(self) -> int:
        """See `BlockAllocator`."""
        self._check_free("now")
        return self.num_blocks - len(self._counts)

    def allocate(self, count: int) -> list[int]:
        """See `BlockAllocator`."""
        free, call = self.num_blocks - len(self._counts), f"allocate({count})"
        if count > free:
            try:
                with self._part.blame(call, OutOfBlocks):
                    taken = self._pool.allocate(count)
            except OutOfBlocks:
                self._check_free(f"after {call} found too few")
                raise
            raise self._part.error(
                f"returned {taken!r} from {call} with {free} blocks free, expected OutOfBlocks"
            )
        with self._part.blame(call):
            taken = self._pool.allocate(count)
        self._check_taken(taken, count, call)
        self._counts.update(taken)
        self._check_free(f"after {call}")
        return list(taken)

    def acquire(self, block: int) -> None:
        """See `BlockAllocator`."""
        self._change("acquire", block, +1)

    def release(self, block: int) -> None:
        """See `BlockAllocator`."""
        self._change("release", block, -1)

    def ref_count(self, block: int) -> int:
        """See `BlockAllocator`."""
        with self._part.blame(f"ref_count({block})"):
            told = self._pool.ref_count(block)
        known = self._counts.get(block, 0)
        self._part.expect(told == known, f"has ref_count({block}) {told!r}, expected {known}")
        return known

    def _change(self, method: str, block: int, by: int) -> None:
        call, free = f"{method}({block})", block not in self._counts
        # On a free block both must fail. Whoever called them so is at fault, not the pool.
        allowed = (InvariantViolation,) if free else ()
        with self._part.blame(call, *allowed):
            getattr(self._pool, method)(block)
        self._part.expect(not free, f"accepted {call} of a free block, expected InvariantViolation")
        self._counts[block] += by
        if not self._counts[block]:
            del self._counts[block]
        self._check_free(f"after {call}")

    def _check_taken(self, taken: object, count: int, call: str) -> None:
        expect = self._part.expect
        if not isinstance(taken, list):
            raise self._part.error(f"returned {taken!r} from {call}, expected a list of block ids")
        expect(len(taken) == count, f"returned {len(taken)} blocks from {call}")
        expect(len(set(taken)) == count, f"returned a block twice from {call}: {taken}")
        for block in taken:
            inside = isinstance(block, int) and 0 <= block < self.num_blocks
            expect(inside, f"returned block {block!r} of 0..{self.num_blocks - 1} from {call}")
            expect(block not in self._counts, f"returned block {block} from {call}: it is in use")

    def _check_free(self, when: str) -> None:
        with self._part.blame("num_free"):
            told = self._pool.num_free
        free = self.num_blocks - len(self._counts)
        self._part.expect(told == free, f"has num_free {told!r} {when}, expected {free}")


def self_test(pool: AuditedPool) -> None:
    """Every method once, on a pool of 4 blocks that is empty; the audit sees what goes wrong.

    Raises:
        PartError: naming the call and what it should have done.
    """
    first = pool.allocate(3)
    pool.allocate(0)
    with suppress(OutOfBlocks):
        pool.allocate(2)
    shared = first[1]
    pool.acquire(shared)
    pool.ref_count(shared)
    pool.release(shared)
    pool.ref_count(shared)
    for block in first:
        pool.release(block)
    pool.ref_count(shared)
    with suppress(InvariantViolation):
        pool.release(shared)
    with suppress(InvariantViolation):
        pool.acquire(shared)
    for block in pool.allocate(pool.num_blocks):
        pool.release(block)
