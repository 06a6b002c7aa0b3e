"""ex07's drawings: what became of one sequence's drafts, and how often each token came."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from minillm_serve.course.exercises.rules_ex07 import Row, passes, right_count

#: Pixels, or characters, of a share of 1.
PIXELS, CHARACTERS = 260, 40


class DraftTable:
    """The drafts of one sequence: a column each, and what the rule says of it."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def text(self) -> str:
        """A line for each number that counts."""
        row, kept = self.row, right_count(self.row)
        lines = [
            ["draft", *map(str, range(row.length))],
            ["token d", *(str(d) for d in row.drafts[: row.length])],
        ]
        seen = [(row.p[i, d], row.q[i, d]) for i, d in enumerate(row.drafts[: row.length])]
        lines += [["p(d)", *(f"{p:.3f}" for p, _ in seen)]]
        lines += [["q(d)", *(f"{q:.3f}" for _, q in seen)]]
        lines += [["p / q", *(f"{p / q:.3f}" if q else ("inf" if p else "0/0") for p, q in seen)]]
        lines += [["draw", *(_draw(row.draws[i, 0]) for i in range(row.length))]]
        lines += [["kept", *(_fate(row, i, kept) for i in range(row.length))]]
        if row.length == 0:
            return "this sequence has no drafts"
        return "\n".join("  ".join(cell.rjust(7) for cell in line) for line in lines)

    def html(self) -> str:
        """The same, as a page shows it."""
        return f"<pre>{html.escape(self.text())}</pre>"


def _draw(draw: float) -> str:
    return f"{draw:.3f}" if draw < 0.9995 else "< 1"


def _fate(row: Row, i: int, kept: int) -> str:
    if i > kept:
        return "-"
    return "yes" if passes(row, i) else "no"


class Shares:
    """How often each token came, beside how often it should.

    Args:
        p: of the model.
        q: of the drafter, or None where nothing was drafted.
        came: shares of what came out.
        title: stands above.
    """

    def __init__(
        self,
        p: Sequence[float],
        q: Sequence[float] | None,
        came: Sequence[float],
        title: str = "",
    ) -> None:
        self.title = title
        self.columns = {"p": list(p), "came": list(came)}
        if q is not None:
            self.columns["q"] = list(q)

    def __repr__(self) -> str:
        """As `text`."""
        return self.text()

    def _repr_html_(self) -> str:
        """As `html`."""
        return self.html()

    def text(self) -> str:
        """A row a token; the bar is what came."""
        lines = [self.title] if self.title else []
        lines.append("  ".join(["token", *(name.rjust(6) for name in self.columns)]))
        for token in range(len(self.columns["p"])):
            cells = [f"{column[token]:6.3f}" for column in self.columns.values()]
            bar = "█" * round(CHARACTERS * self.columns["came"][token])
            lines.append(f"{token:5}  {'  '.join(cells)}  {bar}".rstrip())
        return "\n".join(lines)

    def html(self) -> str:
        """Two bars a token: what should have come, and what came."""
        rows = []
        for token in range(len(self.columns["p"])):
            cells = "".join(
                f'<td style="text-align:right">{column[token]:.3f}</td>'
                for column in self.columns.values()
            )
            bars = _bar(self.columns["p"][token], "#009E73", "p")
            bars += _bar(self.columns["came"][token], "#0072B2", "came")
            rows.append(f'<tr><td>{token}</td>{cells}<td style="text-align:left">{bars}</td></tr>')
        heads = "".join(f"<th>{name}</th>" for name in ("token", *self.columns, ""))
        legend = (
            '<span style="color:#009E73">&#9632;</span> p: should come &nbsp; '
            '<span style="color:#0072B2">&#9632;</span> came'
        )
        title = f"<p>{html.escape(self.title)}</p>" if self.title else ""
        table = f"<table><tr>{heads}</tr>{''.join(rows)}</table>"
        return f"<div>{title}{table}<small>{legend}</small></div>"


def _bar(share: float, color: str, name: str) -> str:
    width = round(PIXELS * min(share, 1.0)) if math.isfinite(share) else 0
    return (
        f'<div title="{name} {share:.3f}" style="height:7px;margin:1px 0;width:{width}px;'
        f'background:{color}"></div>'
    )
