"""What a check found, and how a list of findings is shown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended. Only FAIL means that the engine itself cannot work here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        group: the heading it stands under.
        name: what was looked at, one or two words.
        status: how it ended.
        found: what is there, in one line.
        remedy: what to do about it; empty when nothing needs doing.
    """

    group: str
    name: str
    status: Status
    found: str
    remedy: str = ""


_MARKS = {Status.OK: "✓", Status.WARN: "!", Status.FAIL: "✗"}
_ASCII_MARKS = {Status.OK: "+", Status.WARN: "!", Status.FAIL: "x"}
_COLOURS = {Status.OK: "32", Status.WARN: "33", Status.FAIL: "31;1"}


def render(checks: Sequence[Check], *, colour: bool, unicode: bool = True, width: int = 100) -> str:
    """Lay the checks out as aligned text, grouped under their headings.

    Args:
        checks: in the order in which they are to be shown; a group's checks stand together.
        colour: paint the marks with ANSI codes.
        unicode: False for a terminal whose encoding lacks ✓ and ✗.
        width: columns to wrap at.

    Returns:
        The report, without a newline at its end.
    """
    marks, arrow = (_MARKS, "→") if unicode else (_ASCII_MARKS, "->")
    column = max((len(check.name) for check in checks), default=0) + 2
    lines: list[str] = []
    group = None
    for check in checks:
        if check.group != group:
            group = check.group
            lines += ["", group]
        mark = marks[check.status]
        if colour:
            mark = f"\x1b[{_COLOURS[check.status]}m{mark}\x1b[0m"
        indent = " " * (4 + column)
        found = _wrap(check.found, indent, width)
        lines.append(f"  {mark} {check.name:<{column}}{found.removeprefix(indent)}")
        if check.remedy:
            lines.append(_wrap(f"{arrow} {check.remedy}", indent, width, hang=len(arrow) + 1))
    return "\n".join([*lines, "", summary(checks)]).lstrip("\n")


def summary(checks: Sequence[Check]) -> str:
    """Say in one sentence what the whole report comes to."""
    failed = [check.name for check in checks if check.status is Status.FAIL]
    warned = [check.name for check in checks if check.status is Status.WARN]
    if failed:
        return f"The engine cannot work here yet: {', '.join(failed)}."
    if warned:
        return f"The engine works here. Worth a look: {', '.join(warned)}."
    return "The engine and the course work here."


def to_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the report as plain data: ``{"ok": bool, "summary": str, "checks": [...]}``."""
    return {
        "ok": all(check.status is not Status.FAIL for check in checks),
        "summary": summary(checks),
        "checks": [asdict(check) for check in checks],
    }


def _wrap(text: str, indent: str, width: int, hang: int = 0) -> str:
    return textwrap.fill(
        text,
        width=max(width, len(indent) + 30),
        initial_indent=indent,
        subsequent_indent=indent + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
