"""Which slots of the pool each program of a stage reads: the kernels' arithmetic in plain Python.

A test holds it against recordings of the kernels themselves (`recorder`). It needs no interpreter,
so it serves where the kernels are compiled too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from minillm_serve.course.chapter03.stages import Stage

Program = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One launch of a stage's kernel.

    Attributes:
        stage: which.
        lengths: tokens of each sequence.
        tables: block ids of each sequence, as many as it needs.
        block_size: P.
        heads: H.
        kv_heads: H_kv.
        num_splits: pieces; counts in stage 5 only.
    """

    stage: Stage
    lengths: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...]
    block_size: int
    heads: int
    kv_heads: int
    num_splits: int = 1

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    @property
    def grid(self) -> tuple[int, int, int]:
        """Programs in x (heads), y (sequences) and z (pieces)."""
        heads = self.heads if self.stage.number < 4 else self.kv_heads
        return heads, len(self.lengths), self.num_splits if self.stage.number == 5 else 1

    def programs(self) -> Iterator[Program]:
        """All of them, in the interpreter's order."""
        across, down, deep = self.grid
        return product(range(across), range(down), range(deep))

    def program_of(self, query_head: int, sequence: int, piece: int = 0) -> Program:
        """The program that works for this query head."""
        is_grouped = self.stage.number >= 4
        head = query_head // self.group if is_grouped else query_head
        return head, sequence, min(piece, self.grid[2] - 1)

    def query_heads(self, program: Program) -> range:
        """The query heads that a program works for."""
        if self.stage.number < 4:
            return range(program[0], program[0] + 1)
        return range(program[0] * self.group, (program[0] + 1) * self.group)


@dataclass(frozen=True)
class Tile:
    """What one turn of the loop loads: one slot of a block in the loop kernel, else a whole block.

    Attributes:
        index: of the block in the sequence's table.
        block: its id.
        kv_head: whose keys.
        slots: the lanes, as slots of the block.
        mask: whether each lane reads.
    """

    index: int
    block: int
    kv_head: int
    slots: tuple[int, ...]
    mask: tuple[bool, ...]

    def read(self) -> list[tuple[int, int, int]]:
        """(block, KV head, slot) of each lane that reads."""
        lanes = zip(self.slots, self.mask, strict=True)
        return [(self.block, self.kv_head, slot) for slot, on in lanes if on]


def tiles(launch: Launch, program: Program) -> list[Tile]:
    """The tiles of keys that a program loads in one pass, in order; those of values are alike."""
    x, sequence, split = program
    size, length = launch.block_size, launch.lengths[sequence]
    table = launch.tables[sequence]
    kv_head = x // launch.group if launch.stage.number < 4 else x
    if launch.stage.number == 1:
        return [
            Tile(position // size, table[position // size], kv_head, (position % size,), (True,))
            for position in range(length)
        ]
    begin, end = 0, length
    if launch.stage.number == 5:
        piece = ceil(ceil(length / size) / launch.num_splits) * size
        begin, end = split * piece, min(split * piece + piece, length)
    slots = tuple(range(size))
    return [
        Tile(
            start // size,
            table[start // size],
            kv_head,
            slots,
            tuple(start + slot < end for slot in slots),
        )
        for start in range(begin, end, size)
    ]


def passes(stage: Stage) -> tuple[int, int]:
    """How often a program goes over its keys, and over its values."""
    return (2, 1) if stage.number < 3 else (1, 1)


def slots_read(launch: Launch) -> int:
    """Key and value rows that all programs ask the memory for, each as often as it is asked for."""
    rows = sum(len(tile.read()) for p in launch.programs() for tile in tiles(launch, p))
    return rows * sum(passes(launch.stage))


def slots_needed(launch: Launch) -> int:
    """Key and value rows that are there to be read: the floor of `slots_read`."""
    return 2 * sum(launch.lengths) * launch.kv_heads
