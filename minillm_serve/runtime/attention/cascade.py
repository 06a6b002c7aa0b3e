"""Which sequences of a step share the beginning of their contexts, and so can read it together.

    block tables                   read
    [7 2 9|4]   \
    [7 2 9|5 8]  > three tables    7 2 9 once for all three, then 4, 5 8 and 1 by themselves
    [7 2 9|1]   /
    [3 6]                          3 6

Attention over the shared blocks and over each sequence's own ones is merged exactly: each part
comes with the sum of its e^score (cascade inference: Ye et al., 2024; Hydragen: Juravsky et al.,
2024, arXiv:2402.05099). Equal block ids are all that counts: the same memory holds the same keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Columns of the tables that are compared at once.
_STRIDE = 32
#: How often a group is looked at for a better split. Each sequence of a chain of ever longer
#: contexts would be a fork of its own, and none of them worth the search.
_MOST_FORKS = 8


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Sequences with one row each, whose block tables begin alike.

    Attributes:
        sequences: indices into the step's sequences; two or more.
        num_blocks: blocks that are the same in all of them, and full. Every sequence has at least
            one token more: the row's own.
        block_size: tokens a block (P).
    """

    sequences: tuple[int, ...]
    num_blocks: int
    block_size: int

    @property
    def num_tokens(self) -> int:
        """Positions 0 .. num_tokens-1 are shared."""
        return self.num_blocks * self.block_size


@dataclass(frozen=True, slots=True)
class CascadeCosts:
    """What sharing costs a backend, in tokens of keys and values that it could read meanwhile.

    Attributes:
        readers: the shared blocks take as long as this many sequences reading them alone.
        row: a sequence's result over the shared blocks: written, read and merged.
        step: what comes once a step, such as further launches.
    """

    readers: float
    row: float
    step: float

    def saved(self, members: int, tokens: int) -> float:
        """Tokens that need not be read, less what a group costs; `step` is not in it."""
        return (members - self.readers) * tokens - members * self.row


def find_shared_prefixes(
    block_tables: np.ndarray,
    query_start_loc: np.ndarray,
    seq_lens: np.ndarray,
    *,
    block_size: int,
    costs: CascadeCosts,
) -> tuple[SharedPrefix, ...]:
    """Groups that share enough to pay; each sequence is in at most one.

    Sequences with several rows (slices of prompts) are left out: their rows read the context
    together as it is. The cost is one look at the tables' first column where nothing is shared, and
    otherwise grows with the blocks that are.

    Args:
        block_tables: [S, W] int32.
        query_start_loc: [S+1] int32, as in `AttentionMetadata`.
        seq_lens: [S] int32.
        block_size: tokens a block (P).
        costs: decides.
    """
    single = np.flatnonzero(np.diff(query_start_loc) == 1)
    # A row's own block is not shared, though a full one might be: something is left to each.
    room = (seq_lens.astype(np.int64) - 1) // block_size
    search = _Search(block_tables, room, block_size, costs)
    saved, groups = search.split(single, 0, _MOST_FORKS)
    return tuple(groups) if saved > costs.step else ()


@dataclass(frozen=True, slots=True)
class _Search:
    """The tables, and of each sequence how many blocks may be shared."""

    tables: np.ndarray
    room: np.ndarray
    block_size: int
    costs: CascadeCosts

    def split(
        self, members: np.ndarray, depth: int, forks: int
    ) -> tuple[float, list[SharedPrefix]]:
        """The best groups among members whose first `depth` blocks are the same, and their saving.

        Either all that go on alike form a group, or they are split where their tables fork:

            [7 2 9|4]                 [7 2|9 4]
            [7 2 9|5]        or       [7 2|9 5]        whichever saves more
            [7 2 6 3]                 [7 2|6 3]
        """
        members = members[self.room[members] > depth]
        total = 0.0
        groups: list[SharedPrefix] = []
        for group in _equal(members, self.tables[members, depth]) if len(members) > 1 else ():
            end = self._common(group, depth + 1)
            saved = self.costs.saved(len(group), end * self.block_size)
            whole = SharedPrefix(tuple(group.tolist()), end, self.block_size)
            best = [whole] if saved > 0 else []
            saved = max(saved, 0.0)
            if forks and len(group) > 2:
                apart, parts = self.split(group, end, forks - 1)
                saved, best = (apart, parts) if apart > saved else (saved, best)
            total, groups = total + saved, groups + best
        return total, groups

    def _common(self, group: np.ndarray, depth: int) -> int:
        """How many blocks are the same in a group, of which `depth` are known to be."""
        limit = int(self.room[group].min())
        while depth < limit:
            columns = self.tables[group, depth : min(depth + _STRIDE, limit)]
            differs = (columns != columns[0]).any(axis=0)
            if differs.any():
                return depth + int(differs.argmax())
            depth += columns.shape[1]
        return depth


def _equal(members: np.ndarray, ids: np.ndarray) -> list[np.ndarray]:
    """Members with the same id, two or more of them together."""
    order = np.argsort(ids, kind="stable")
    borders = np.flatnonzero(np.diff(ids[order])) + 1
    if len(borders) == len(ids) - 1:
        return []
    return [group for group in np.split(members[order], borders) if len(group) > 1]


def member_tiles(prefixes: Sequence[SharedPrefix], most: int) -> np.ndarray:
    """Cuts groups into tiles of up to `most` sequences, evenly: [N, most] int32, filled up with -1.

    Tiles of one group follow each other, so that the later ones find its blocks in a cache.
    """
    tiles = []
    for prefix in prefixes:
        pieces = -(-len(prefix.sequences) // most)
        for piece in np.array_split(np.array(prefix.sequences, np.int32), pieces):
            tiles.append(np.pad(piece, (0, most - len(piece)), constant_values=-1))
    return np.array(tiles, np.int32).reshape(-1, most)


def shared_tokens(prefixes: Sequence[SharedPrefix], num_sequences: int) -> np.ndarray:
    """How many tokens each sequence reads together with others: [S] int32; 0 outside of groups."""
    tokens = np.zeros(num_sequences, np.int32)
    for prefix in prefixes:
        tokens[list(prefix.sequences)] = prefix.num_tokens
    return tokens
