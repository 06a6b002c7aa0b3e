"""KV memory, handed out in one piece or in blocks. Everything is counted in tokens (slots)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from minillm_serve.core import BlockManager, BlockPool, Request, Sequence
from minillm_serve.core.scheduler.continuous import WATERMARK


class Span(NamedTuple):
    """Slots `start .. start + length - 1` of the memory."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """The first slot behind it."""
        return self.start + self.length


class Talk(NamedTuple):
    """A conversation: its prompt, the answer that it will get, and the longest it asked for.

    Attributes:
        prompt: tokens that are there when it begins.
        output: tokens that will be generated. Nobody knows before the last one.
        asked: tokens, prompt and answer, that it must be able to grow to.
    """

    prompt: int
    output: int
    asked: int

    @property
    def final(self) -> int:
        """Tokens that it will have stored in the end: nobody reads the last one back."""
        return self.prompt + self.output - 1


class FirstFit:
    """Contiguous memory: every owner gets one piece, in the first hole that is long enough.

    Args:
        size: slots.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.pieces: dict[str, Span] = {}

    def holes(self) -> list[Span]:
        """Free stretches, in order of address."""
        holes, end = [], 0
        for piece in [*sorted(self.pieces.values()), Span(self.size, 0)]:
            if piece.start > end:
                holes.append(Span(end, piece.start - end))
            end = piece.end
        return holes

    def allocate(self, owner: str, length: int) -> Span | None:
        """A piece of this length, or None if no hole is long enough."""
        for hole in self.holes():
            if hole.length >= length:
                self.pieces[owner] = Span(hole.start, length)
                return self.pieces[owner]
        return None

    def free(self, owner: str) -> None:
        """Gives a piece back."""
        del self.pieces[owner]


class Memory(Protocol):
    """Where conversations keep their tokens."""

    size: int

    def admit(self, name: str, talk: Talk, stored: int) -> bool:
        """Lets a conversation in that has `stored` tokens; False, and nothing taken, if not."""
        ...

    def grow(self, name: str, stored: int) -> bool:
        """Makes room for a conversation's first `stored` tokens; False if there is none."""
        ...

    def release(self, name: str) -> None:
        """Takes back all that it holds."""
        ...

    def held(self, name: str) -> int:
        """Slots that it holds, with a token in them or not."""
        ...

    def spans(self, name: str) -> tuple[Span, ...]:
        """Where these are, in the order of its tokens."""
        ...

    def stranded(self, waiting: Iterable[Talk]) -> int:
        """Free slots that those next in line would get if only they lay in one piece."""
        ...


class Reserving:
    """One piece for each, as long as it may get: `reserve` says how long that is.

    Args:
        size: slots.
        reserve: conversation -> slots, at least as many as it will need.
    """

    def __init__(self, size: int, reserve: Callable[[Talk], int]) -> None:
        self.size, self.reserve = size, reserve
        self._memory = FirstFit(size)

    def admit(self, name: str, talk: Talk, stored: int) -> bool:
        """See `Memory`."""
        return self._memory.allocate(name, self.reserve(talk)) is not None

    def grow(self, name: str, stored: int) -> bool:
        """See `Memory`; it never has to be refused."""
        return stored <= self._memory.pieces[name].length

    def release(self, name: str) -> None:
        """See `Memory`."""
        self._memory.free(name)

    def held(self, name: str) -> int:
        """See `Memory`."""
        return self._memory.pieces[name].length

    def spans(self, name: str) -> tuple[Span, ...]:
        """See `Memory`."""
        return (self._memory.pieces[name],)

    def stranded(self, waiting: Iterable[Talk]) -> int:
        """See `Memory`: external fragmentation."""
        free = left = sum(hole.length for hole in self._memory.holes())
        for talk in waiting:
            if self.reserve(talk) > left:
                break
            left -= self.reserve(talk)
        return free - left


class Paged:
    """Blocks of P slots by need, from the engine's own `BlockManager`.

    Args:
        size: slots.
        block_size: tokens a block (P).
    """

    def __init__(self, size: int, block_size: int) -> None:
        self.size = size
        self.blocks = BlockManager(BlockPool(size // block_size), block_size)
        self._sequences: dict[str, Sequence] = {}

    def admit(self, name: str, talk: Talk, stored: int) -> bool:
        """See `Memory`."""
        sequence = Sequence(Request(request_id=name, prompt_token_ids=(0,) * talk.prompt))
        # As the engine's scheduler does it: those who are here must be able to grow a little.
        spare = int(WATERMARK * self.blocks.pool.num_blocks) if self._sequences else 0
        if self.blocks.grow(sequence, stored, leave=spare):
            self._sequences[name] = sequence
        return name in self._sequences

    def grow(self, name: str, stored: int) -> bool:
        """See `Memory`."""
        return self.blocks.grow(self._sequences[name], stored)

    def release(self, name: str) -> None:
        """See `Memory`."""
        self.blocks.release(self._sequences.pop(name))

    def held(self, name: str) -> int:
        """See `Memory`."""
        return len(self._sequences[name].block_table) * self.blocks.block_size

    def spans(self, name: str) -> tuple[Span, ...]:
        """See `Memory`."""
        size = self.blocks.block_size
        return tuple(Span(block * size, size) for block in self._sequences[name].block_table)

    def stranded(self, waiting: Iterable[Talk]) -> int:
        """See `Memory`: any free block will do, so nothing ever is."""
        return 0
