"""A few marks for short texts in widgets: `code`, **bold**, *emphasis*, $formula$.

Kernel-side and offline: in live widgets formulas become MathML, which every current browser draws
by itself. Stored pages are another matter: JupyterLab (before a notebook is trusted) and GitHub
strip MathML and leave `109` of 10⁹, so there a formula is made of plain HTML.
"""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_MARKS = re.compile(
    r"`(?P<code>[^`]+)`|\$(?P<math>[^$]+)\$|\*\*(?P<bold>.+?)\*\*|\*(?P<em>[^*\s][^*]*)\*"
)

_COMMANDS = {
    "cdot": "·", "times": "×", "approx": "≈", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "lambda": "λ", "mu": "μ", "rho": "ρ", "alpha": "α", "to": "→", "ldots": "…", "dots": "…",
    "infty": "∞", "pm": "±", "neq": "≠", "sum": "Σ", ",": " ", ";": " ", "%": "%",
}  # fmt: skip

_TOKENS = re.compile(
    r"\\(?:text|mathrm)\{(?P<words>[^{}]*)\}"
    r"|(?P<shift>[_^])(?:\{(?P<group>[^{}]*)\}|(?P<one>[A-Za-z0-9]))"
    r"|\\(?P<command>[A-Za-z]+|[,;%])"
    r"|(?P<letter>[A-Za-z])"
    r"|(?P<other>[^\\{}_^])"
)


def _simple_html(latex: str) -> str | None:
    """A one-line formula as plain HTML; None if it needs more than indices and signs."""
    parts, last = [], 0
    for hit in _TOKENS.finditer(latex):
        if hit.start() != last:
            return None
        last = hit.end()
        if hit["words"] is not None:
            parts.append(html.escape(hit["words"]))
        elif hit["shift"]:
            inside = _simple_html(hit["group"] if hit["group"] is not None else hit["one"])
            if inside is None:
                return None
            tag = "sub" if hit["shift"] == "_" else "sup"
            parts.append(f"<{tag}>{inside}</{tag}>")
        elif hit["command"]:
            if hit["command"] not in _COMMANDS:
                return None
            parts.append(_COMMANDS[hit["command"]])
        else:
            parts.append(f"<i>{hit['letter']}</i>" if hit["letter"] else html.escape(hit["other"]))
    return "".join(parts) if last == len(latex) else None


def _formula(latex: str, static: bool) -> str:
    if static:
        return _simple_html(latex) or f"<code>{html.escape(latex)}</code>"
    return str(convert(latex))


def inline(text: str, *, static: bool = False) -> str:
    """Turn the marks of one short text into HTML; everything else is escaped.

    Args:
        text: With the marks.
        static: Keep to what survives in stored pages: no MathML.
    """
    parts, last = [], 0
    for hit in _MARKS.finditer(text):
        parts.append(html.escape(text[last : hit.start()]))
        last = hit.end()
        if hit["math"] is not None:
            parts.append(_formula(hit["math"], static))
        elif hit["code"] is not None:
            parts.append(f"<code>{html.escape(hit['code'])}</code>")
        elif hit["bold"] is not None:
            parts.append(f"<b>{inline(hit['bold'], static=static)}</b>")
        else:
            parts.append(f"<em>{inline(hit['em'], static=static)}</em>")
    return "".join([*parts, html.escape(text[last:])])


def plain(text: str) -> str:
    """The same text without the marks, for terminals."""
    return _MARKS.sub(lambda hit: next(part for part in hit.groups() if part is not None), text)
