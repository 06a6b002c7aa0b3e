"""A report of runs under load that is one file: nothing is fetched from anywhere."""

import base64
import html
import json
from collections.abc import Sequence
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: 0.2rem 0.9rem 0.2rem 0; text-align: right; }
th { font-weight: 600; border-bottom: 1px solid #8a939c; }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; border-bottom: 1px solid #e4e7eb; }
img { max-width: 100%; margin-top: 1rem; }
pre { background: #f4f5f7; padding: 0.7rem; overflow-x: auto; }
p { color: #52606d; margin-top: 0; }
"""
LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "between two pieces of text",
    "e2e": "to the last token",
    "late": "sent after its time",
}
RATES = {
    "served": "served",
    "refused": "refused",
    "failed": "failed",
    "output_tok_s": "output tok/s",
    "requests_s": "requests/s",
    "goodput": "goodput, /s",
    "share_as_promised": "as promised",
    "ratio": "HTTP / offline",
}


def page(record: dict[str, Any], pictures: Sequence[bytes]) -> str:
    """The report of some runs.

    Args:
        record: as it is saved as JSON.
        pictures: a PNG of each run; none where they cannot be drawn.
    """
    title = html.escape(record["title"])
    parts = [
        f"<h1>{title}</h1><p>{html.escape(_subtitle(record))}</p>",
        _table(["run", *RATES.values()], [_rates(i, run) for i, run in _numbered(record)]),
    ]
    for index, run in _numbered(record):
        parts.append(f"<h2>Run {index}: latencies in ms</h2>")
        parts.append(_latencies(run))
        if index <= len(pictures):
            data = base64.b64encode(pictures[index - 1]).decode()
            parts.append(f'<img alt="run {index}" src="data:image/png;base64,{data}">')
        parts += [
            f"<p>{count} x {html.escape(problem)}</p>" for problem, count in run["problems"].items()
        ]
    context = html.escape(json.dumps(record["stamp"], indent=1))
    parts.append(f"<h2>Measured on</h2><pre>{context}</pre>")
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en">\n{head}\n<body>\n{body}\n</body>\n</html>\n'


def _numbered(record: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return list(enumerate(record["runs"], 1))


def _subtitle(record: dict[str, Any]) -> str:
    about = record["stamp"]
    slo = about["slo"]
    promises = [f"{name.upper()} up to {slo[name]:g} s" for name in slo if slo[name] is not None]
    promised = f"Promised: {', '.join(promises)}. " if promises else ""
    return f"{promised}{about['hardware']}, {about['date']}, commit {about['commit']}."


def _rates(index: int, run: dict[str, Any]) -> list[str]:
    cells = []
    for name in RATES:
        value = run.get(name)
        if value is None:
            cells.append("")
        elif name == "share_as_promised":
            cells.append(f"{value:.0%}")
        else:
            cells.append(str(value) if isinstance(value, int) else f"{value:.2f}")
    return [str(index), *cells]


def _latencies(run: dict[str, Any]) -> str:
    columns = list(run["late"])
    rows = [
        [text, *(f"{1e3 * run[name][column]:.1f}" for column in columns)]
        for name, text in LATENCIES.items()
        if run.get(name) is not None
    ]
    return _table(["", *columns], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
