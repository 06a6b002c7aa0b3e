"""What was measured, as a table."""

from collections.abc import Sequence
from typing import Any

from minillm_serve.quality.tasks import TITLES
from minillm_serve.sim.units import format_bytes


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of `measure.Row.record`, the reference first."""
    head = ["", "weights", "KV/token", "users", "perplexity", "KL", "same top"]
    told = [
        [
            row["name"],
            format_bytes(row["weight_bytes"], 0),
            format_bytes(row["kv_bytes"], 1),
            f"{row['users']:,}",
            f"{row['text']['perplexity']:.3f}",
            shown_kl(row["text"]["kl"]),
            f"{row['text']['same_top']:.1%}",
        ]
        for row in rows
    ]
    return _aligned([head, *told])


def kinds_table(rows: Sequence[dict[str, Any]]) -> str:
    """By kind of task: KL on the reference's answers, and how long own answers agree."""
    kinds = [kind for kind in TITLES if kind in rows[0]["kinds"]]
    head = ["", *(f"{TITLES[kind]}: KL, agreed" for kind in kinds)]
    told = []
    for row in rows:
        cells = [row["name"]]
        for kind in kinds:
            found = row["kinds"][kind]
            same = f"{sum(found['agreed'])} of {sum(found['lengths'])}"
            cells.append(f"{shown_kl(found['kl'])}, {same}")
        told.append(cells)
    return _aligned([head, *told])


def shown_kl(kl: float) -> str:
    """A divergence in nats: rounding errors of float32 count as none."""
    return "0" if kl < 1e-8 else f"{kl:.2g}" if kl >= 1e-3 else f"{kl:.1e}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
