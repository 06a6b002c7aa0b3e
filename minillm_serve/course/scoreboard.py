"""The scoreboard: one fixed trace on the real model, one row for each technique so far.

The file, `benchmarks/results/scoreboard.json`, is written by `minillm-serve bench scoreboard`:

    {"stamp": {"hardware": "...", "versions": {"torch": "..."}, "commit": "...",
               "date": "2026-01-31", "seed": 0, "trace": "..."},
     "rows": [{"id": "naive", "chapter": 0, "technique": "one request at a time",
               "ttft_p50_s": 1.2, "ttft_p95_s": 3.4, "tpot_p50_s": 0.05, "tpot_p95_s": 0.06,
               "output_tok_s": 20.1, "kv_waste": 0.62, "slot_utilisation": 0.31,
               "note": "why this row is as it is"}]}

Times in seconds, `kv_waste` and `slot_utilisation` as fractions of 1; a number that does not apply
is null. Rows that turned out badly stay, and their `note` says why.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from textwrap import shorten
from typing import Any

from matplotlib.figure import Figure

from . import plots

PATH = Path("benchmarks/results/scoreboard.json")
REMEDY = "write it with: minillm-serve bench scoreboard"


class ScoreboardError(RuntimeError):
    """The scoreboard's file is missing or malformed; the message says how to write it."""


@dataclass(frozen=True)
class Row:
    """One technique's figures over the trace. Times in s; waste and utilisation in 0..1."""

    id: str
    chapter: int
    technique: str
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None
    output_tok_s: float | None = None
    kv_waste: float | None = None
    slot_utilisation: float | None = None
    note: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """Read one row.

        Raises:
            ScoreboardError: A field is missing or unknown.
        """
        known = {field.name for field in fields(cls)}
        if unknown := set(data) - known:
            raise ScoreboardError(f"row {data.get('id')!r} has unknown fields {sorted(unknown)}")
        if missing := {"id", "chapter", "technique"} - set(data):
            raise ScoreboardError(f"row {data.get('id')!r} lacks {sorted(missing)}")
        return cls(**data)


# Header, how a row's cell is made.
_COLUMNS: tuple[tuple[str, str, float, str], ...] = (
    ("TTFT p50 (ms)", "ttft_p50_s", 1e3, ",.0f"),
    ("TTFT p95 (ms)", "ttft_p95_s", 1e3, ",.0f"),
    ("TPOT p50 (ms)", "tpot_p50_s", 1e3, ",.1f"),
    ("TPOT p95 (ms)", "tpot_p95_s", 1e3, ",.1f"),
    ("output tok/s", "output_tok_s", 1, ",.1f"),
    ("KV waste", "kv_waste", 1, ".0%"),
    ("slots used", "slot_utilisation", 1, ".0%"),
)


def _cells(row: Row, live: bool) -> list[str]:
    """One row of the table as text."""
    numbers = []
    for _, name, scale, fmt in _COLUMNS:
        value = getattr(row, name)
        numbers.append("–" if value is None else format(value * scale, fmt))
    return [f"{row.chapter:02d}", f"{row.technique} [LIVE]" if live else row.technique, *numbers]


def _stamp_line(stamp: Mapping[str, Any]) -> str:
    """A stamp in one line, in the file's order."""
    parts = []
    for key, value in stamp.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {version}" for name, version in value.items())
        parts.append(f"{key} {value}")
    return " · ".join(parts)


@dataclass(frozen=True)
class Table:
    """Rows laid out; `live` is a row measured in this notebook, with a stamp of its own."""

    rows: tuple[Row, ...]
    stamp: Mapping[str, Any]
    live: Row | None = None
    live_stamp: Mapping[str, Any] | None = None

    def _head(self) -> list[str]:
        return ["ch.", "technique", *(name for name, *_ in _COLUMNS)]

    def _all(self) -> list[tuple[Row, bool]]:
        live = [(self.live, True)] if self.live is not None else []
        return [*((row, False) for row in self.rows), *live]

    def _footers(self) -> list[str]:
        lines = [f"Committed rows, measured together in one run: {_stamp_line(self.stamp)}"]
        if self.live is not None:
            lines.append(
                f"[LIVE] measured just now: {_stamp_line(self.live_stamp or {})}. Its times "
                "compare with the committed rows only if machine, trace and load are the same."
            )
        return lines

    def _notes(self) -> list[tuple[str, str]]:
        # A live row repeats a committed one, note and all.
        return list({(row.technique, row.note): None for row, _ in self._all() if row.note})

    def __repr__(self) -> str:
        """Aligned text."""
        grid = [self._head(), *(_cells(row, live) for row, live in self._all())]
        widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in grid
        ]
        notes = [f"  {technique}: {note}" for technique, note in self._notes()]
        return "\n".join([*lines, *notes, *self._footers()])

    def _repr_html_(self) -> str:
        """A table; the live row is marked, notes and stamps stand below."""

        def line(cells: Sequence[str], tag: str, attributes: str = "") -> str:
            sides = ["left", "left", *["right"] * len(_COLUMNS)]
            aligned = "".join(
                f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
                for cell, side in zip(cells, sides, strict=True)
            )
            return f"<tr{attributes}>{aligned}</tr>"

        mark = ' style="outline:2px solid #0072B2"'
        body = "".join(line(_cells(row, live), "td", mark * live) for row, live in self._all())
        notes = "".join(
            f"<li><b>{html.escape(technique)}</b>: {html.escape(note)}</li>"
            for technique, note in self._notes()
        )
        below = "".join(f"<p><small>{html.escape(text)}</small></p>" for text in self._footers())
        return (
            f"<table><thead>{line(self._head(), 'th')}</thead><tbody>{body}</tbody></table>"
            f"<ul>{notes}</ul>{below}"
        )


class Scoreboard:
    """The committed rows and the stamp of the run that measured them."""

    def __init__(self, rows: Sequence[Row], stamp: Mapping[str, Any]) -> None:
        self.rows, self.stamp = tuple(sorted(rows, key=lambda row: row.chapter)), dict(stamp)

    @classmethod
    def load(cls, path: Path | str | None = None) -> Scoreboard:
        """Read the file.

        Args:
            path: Of the file; None looks in this folder and those above it.

        Raises:
            ScoreboardError: It is missing or malformed; says how to write it.
        """
        file = Path(path) if path is not None else _look_up(Path.cwd())
        if file is None or not file.is_file():
            raise ScoreboardError(f"there is no {path or PATH} here or above; {REMEDY}")
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            rows, stamp = data["rows"], data["stamp"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ScoreboardError(f"{file} is not a scoreboard ({error!r}); {REMEDY}") from error
        return cls([Row.from_dict(row) for row in rows], stamp)

    def up_to(self, chapter: int | None) -> tuple[Row, ...]:
        """Rows of the chapters up to and including this one; all for None."""
        return tuple(row for row in self.rows if chapter is None or row.chapter <= chapter)

    def table(
        self,
        up_to_chapter: int | None = None,
        live_row: Row | Mapping[str, Any] | None = None,
        live_stamp: Mapping[str, Any] | None = None,
    ) -> Table:
        """Lay the rows out.

        Args:
            up_to_chapter: Last chapter to show; None for all.
            live_row: A row measured on this machine now; it is marked as such.
            live_stamp: Where and on what trace it was measured; required with `live_row`.

        Raises:
            ValueError: A live row without its own stamp: its times would pass for committed ones.
        """
        if live_row is not None and not live_stamp:
            raise ValueError("live_row needs live_stamp={'hardware': ..., 'trace': ...} of its own")
        live = Row.from_dict(live_row) if isinstance(live_row, Mapping) else live_row
        return Table(self.up_to(up_to_chapter), self.stamp, live, live_stamp)

    def figure(self, up_to_chapter: int | None = None) -> Figure:
        """Output tokens/s and TPOT p95 of each technique, side by side.

        Raises:
            ValueError: No row has a chapter this early.
        """
        rows = self.up_to(up_to_chapter)
        if not rows:
            raise ValueError(f"the scoreboard has no row up to chapter {up_to_chapter}")
        height = 1.5 + 0.42 * len(rows)
        fig, (speed, typing) = plots.figure(1, 2, sharey=True, height=height)
        names = [f"{row.chapter:02d} {row.technique}" for row in rows]
        speed.barh(names, [row.output_tok_s or 0 for row in rows], color=plots.COLORS["ours"])
        times = [(row.tpot_p95_s or 0) * 1e3 for row in rows]
        typing.barh(names, times, color=plots.COLORS["peer"])
        speed.invert_yaxis()
        best = max(rows, key=lambda row: row.output_tok_s or 0)
        plots.label(
            speed,
            x="output tokens per second",
            title=f"Most: {shorten(best.technique, 32, placeholder='...')}",
        )
        plots.label(typing, x="TPOT, 95th percentile (ms)", title="Wait per token")
        for ax in (speed, typing):
            ax.grid(axis="y", visible=False)
        return fig


def _look_up(folder: Path) -> Path | None:
    """The nearest scoreboard at or above `folder`: a notebook's kernel runs in `notebooks/`."""
    for place in (folder, *folder.parents):
        if (place / PATH).is_file():
            return place / PATH
    return None
