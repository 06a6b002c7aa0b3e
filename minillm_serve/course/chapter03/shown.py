"""Texts and tables that a notebook shows as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Shown:
    """Markdown; last line of a cell.

    Attributes:
        data: the markdown.
    """

    def __init__(self, data: str) -> None:
        self.data = data

    def _repr_markdown_(self) -> str:
        return self.data

    def __repr__(self) -> str:
        """The same, for a terminal."""
        return self.data


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Shown:
    """A table.

    Args:
        header: of the columns.
        rows: as many cells each; marks of markdown work.
    """
    lines = [header, ["---"] * len(header), *rows]
    return Shown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))
