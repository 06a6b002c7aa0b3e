"""What the model gave for a sequence's tokens, as far as somebody will still read it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from minillm_serve.runtime.device import upload_one


class Piece(NamedTuple):
    """The model's outputs of positions [start, stop) of one sequence.

    Attributes:
        start: the first position.
        stop: after the last.
        buffer: [N, hidden], of which they are some rows, end to end.
        row: the first of them.
    """

    start: int
    stop: int
    buffer: Tensor
    row: int

    def within(self, start: int, stop: int) -> "Piece":
        """Of its positions those in [start, stop)."""
        begin = max(start, self.start)
        return Piece(begin, min(stop, self.stop), self.buffer, self.row + begin - self.start)


@dataclass(slots=True)
class Trail:
    """How far the rows of a draft head were computed, and the outputs that further ones will read.

    Row t reads the model's output at t - 1, so these are the outputs from `num_read` - 1 on. The
    first of them may be unknown: another sequence computed it, whose blocks this one found.

    Attributes:
        num_read: rows that are in the head's cache, computed from the model's own outputs.
        pieces: outputs, end to end.
    """

    num_read: int
    pieces: list[Piece] = field(default_factory=list)

    @property
    def stop(self) -> int:
        """Outputs are known up to this position."""
        return self.pieces[-1].stop if self.pieces else self.num_read

    def extend(self, piece: Piece) -> None:
        """Takes in new outputs. What was believed of their positions and later ones is forgotten.

        (They were outputs of drafts that were refused, or of tokens whose blocks were taken away.)
        """
        start, pieces = piece.start, self.pieces
        while pieces and pieces[-1].start >= start:
            pieces.pop()
        if pieces:
            pieces[-1] = pieces[-1].within(0, start)
        if self.stop < start:
            self.num_read, self.pieces = start, []  # it was not told of a step
        self.pieces.append(piece)

    def before(self, end: int, unknown: Tensor) -> list[Piece]:
        """The outputs that rows `num_read` to `end` - 1 read.

        Args:
            end: up to where they are known: at most `stop` + 1.
            unknown: [1, hidden], takes the place of the first if it is unknown or there is none.
        """
        first = self.num_read - 1
        found = [
            p.within(first, end - 1) for p in self.pieces if p.start < end - 1 and p.stop > first
        ]
        if not found or found[0].start > first:
            found.insert(0, Piece(first, first + 1, unknown, 0))
        return found

    def advance(self, end: int) -> None:
        """All rows before this position are computed: what only they read is let go."""
        self.num_read = end
        self.pieces = [piece for piece in self.pieces if piece.stop >= end]


def gather(pieces: list[Piece]) -> Tensor:
    """The outputs of all pieces, end to end: [T, hidden]."""
    buffer = pieces[0].buffer
    spans = [(piece.row, piece.row + piece.stop - piece.start) for piece in pieces]
    if len(spans) == 1:
        return buffer[slice(*spans[0])]
    if all(piece.buffer is buffer for piece in pieces):
        return buffer[
            upload_one([row for span in spans for row in range(*span)], np.int64, buffer.device)
        ]
    return torch.cat(
        [piece.buffer[slice(*span)] for piece, span in zip(pieces, spans, strict=True)]
    )
