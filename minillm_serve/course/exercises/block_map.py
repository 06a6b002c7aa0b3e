"""A drawing of the KV pool and of what an answer read in it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: state -> (letter in plain text, fill, what the legend says)
_STATES = {
    "right": ("r", "#0072B2", "read, and its own"),
    "unread": ("u", "#E69F00", "its own, never read"),
    "empty": ("e", "#CC79A7", "read, but holds no token yet"),
    "foreign": ("X", "#D55E00", "read, but in no block of its own"),
    "idle": (".", "#E4E7EB", "not its own, not read"),
}
_CELL, _GAP = 18, 6


@dataclass(frozen=True)
class BlockMap:
    """Which slots of which blocks were read, and which should have been.

    Attributes:
        num_blocks: blocks in the pool.
        block_size: slots in a block, P.
        allowed: block -> how many of its slots hold tokens of the sequence that was asked about.
        reads: `(block, slot)`, in the order read.
    """

    num_blocks: int
    block_size: int
    allowed: Mapping[int, int]
    reads: Sequence[tuple[int, int]]

    def state(self, block: int, slot: int) -> str:
        """What is the matter with one slot of the pool."""
        own = slot < self.allowed.get(block, 0)
        if (block, slot) not in set(self.reads):
            return "unread" if own else "idle"
        if own:
            return "right"
        return "empty" if block in self.allowed else "foreign"

    def out_of_bounds(self) -> list[tuple[int, int]]:
        """Reads outside the pool or outside a block, without repeats, in order."""
        inside = (range(self.num_blocks), range(self.block_size))
        return list(
            dict.fromkeys(
                (block, slot)
                for block, slot in self.reads
                if block not in inside[0] or slot not in inside[1]
            )
        )

    def is_right(self) -> bool:
        """Whether exactly the sequence's own slots were read."""
        own = {(block, slot) for block, held in self.allowed.items() for slot in range(held)}
        return set(self.reads) == own

    def text(self) -> str:
        """One row a block, one letter a slot, and the reads that lie outside."""
        rows = [
            f"block {block:>3}  "
            + "".join(_STATES[self.state(block, slot)][0] for slot in range(self.block_size))
            for block in range(self.num_blocks)
        ]
        found = {self.state(b, s) for b in range(self.num_blocks) for s in range(self.block_size)}
        legend = [f"{mark} {said}" for name, (mark, _, said) in _STATES.items() if name in found]
        return "\n".join([*rows, *self._outside(), "; ".join(legend)])

    def _outside(self) -> list[str]:
        return [
            f"out of bounds: block {block} slot {slot} (there are blocks 0..{self.num_blocks - 1}, "
            f"slots 0..{self.block_size - 1})"
            for block, slot in self.out_of_bounds()[:5]
        ]

    def svg(self) -> str:
        """The same as a drawing: a column a block, a square a slot."""
        pitch = _CELL + _GAP + 8
        width, height = self.num_blocks * pitch + 60, self.block_size * _CELL + 26
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'role="img" aria-label="{html.escape(self.text())}" font-size="11" '
            'font-family="sans-serif">'
        ]
        for block in range(self.num_blocks):
            x = block * pitch + 4
            parts.append(
                f'<text x="{x + _CELL / 2}" y="12" text-anchor="middle" fill="currentColor">'
                f"{block}</text>"
            )
            for slot in range(self.block_size):
                mark, fill, said = _STATES[self.state(block, slot)]
                y = 18 + slot * _CELL
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL - 2}" rx="2" '
                    f'fill="{fill}"><title>block {block}, slot {slot}: {said}</title></rect>'
                )
                if mark in "Xe":  # not by colour alone
                    parts.append(
                        f'<text x="{x + _CELL / 2}" y="{y + 12}" text-anchor="middle" fill="white">'
                        f"{mark}</text>"
                    )
        return "".join([*parts, "</svg>"])

    def html(self) -> str:
        """The drawing with its legend and the reads that lie outside."""
        found = {self.state(b, s) for b in range(self.num_blocks) for s in range(self.block_size)}
        legend = "".join(
            '<span style="margin-right:1.2em;white-space:nowrap">'
            f'<span style="color:{fill}">&#9632;</span> {html.escape(said)}</span>'
            for name, (_, fill, said) in _STATES.items()
            if name in found
        )
        outside = "".join(f"<div>&#9888; {html.escape(line)}</div>" for line in self._outside())
        return f"<div>{self.svg()}<div>{legend}</div>{outside}</div>"
