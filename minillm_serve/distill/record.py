"""Evaluations as JSON values, and as tables."""

from collections.abc import Mapping
from typing import Any

from minillm_serve.distill.evaluation import Replay


def as_record(found: Mapping[str, Mapping[int, Replay]]) -> dict[str, Any]:
    """kind -> its figures, as they stand in a head's file.

    ``tokens_per_step`` is keyed by drafts a step, as text (JSON has no other keys); ``acceptance``
    is by draft position, of the longest chain.
    """
    return {
        kind: {
            "num_tokens": by_k[max(by_k)].num_tokens,
            "tokens_per_step": {str(k): round(by_k[k].tokens_per_step, 3) for k in by_k},
            "acceptance": [round(share, 3) for share in by_k[max(by_k)].acceptance],
        }
        for kind, by_k in found.items()
    }


def tokens_table(record: Mapping[str, Any]) -> str:
    """Markdown: tokens out per verification step, kinds by drafts a step."""
    columns = list(next(iter(record.values()))["tokens_per_step"])
    rows = [["kind", *(f"k = {k}" for k in columns), "tokens"]]
    for kind, figures in record.items():
        values = [f"{figures['tokens_per_step'][k]:.2f}" for k in columns]
        rows.append([kind, *values, f"{figures['num_tokens']:,}"])
    return _table(rows)


def acceptance_table(record: Mapping[str, Any]) -> str:
    """Markdown: of the drafts that were reached, the share kept, by draft position."""
    positions = range(len(next(iter(record.values()))["acceptance"]))
    rows = [["kind", *(f"draft {i + 1}" for i in positions)]]
    rows += [
        [kind, *(f"{100 * share:.0f} %" for share in figures["acceptance"])]
        for kind, figures in record.items()
    ]
    return _table(rows)


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)
