"""What must be true of every committed notebook, checked without running it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .experiment import ERROR_MARK

MAX_LINES = 25
"""Lines in one code cell: more than fits beside its output hides an idea."""

# Places that exist on one machine only. A reader's own would differ, and they may name a user.
MACHINE_PATHS = re.compile(
    r"(?:/home/|/Users/|/root/|/tmp/|/var/folders/|/private/|/work/|/mnt/|/opt/conda)[\w.-]+"
    r"|[A-Za-z]:\\+(?:Users|Temp)\\+\w+"
    r"|site-packages/"
)


def source_of(cell: Any) -> str:
    """A cell's source, whether stored as one text or as lines."""
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def code_cells(notebook: Any) -> list[tuple[int, Any]]:
    """`(position, cell)` of each code cell that is not empty."""
    return [
        (position, cell)
        for position, cell in enumerate(notebook["cells"])
        if cell["cell_type"] == "code" and source_of(cell).strip()
    ]


def check(notebook: Any) -> list[str]:
    """Find what is wrong with a committed notebook.

    Args:
        notebook: As read by nbformat or json.

    Returns:
        One sentence a problem, each with the cell's position from 0; empty if all is well.
    """
    checks = (_metadata, _ids, _executed, _lengths, _outputs)
    return [problem for one in checks for problem in one(notebook)]


def check_file(path: Path) -> list[str]:
    """The same for a file; an unreadable one is a problem too."""
    try:
        return check(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"it cannot be read as a notebook: {error!r}"]


def _metadata(notebook: Any) -> Iterator[str]:
    if "widgets" in notebook["metadata"]:
        yield "metadata.widgets is stored, which blanks widgets in static views: execute it again"
    if notebook.get("nbformat") != 4 or notebook.get("nbformat_minor", 0) < 5:
        yield "it is not in format 4.5 or later, which has the ids of cells: execute it again"


def _ids(notebook: Any) -> Iterator[str]:
    seen: dict[str, int] = {}
    for position, cell in enumerate(notebook["cells"]):
        name = cell.get("id")
        if not name:
            yield f"cell {position} has no id"
        elif name in seen:
            yield f"cells {seen[name]} and {position} have the same id {name!r}"
        else:
            seen[name] = position


def _executed(notebook: Any) -> Iterator[str]:
    for expected, (position, cell) in enumerate(code_cells(notebook), 1):
        count = cell.get("execution_count")
        if count is None:
            yield f"cell {position} was never executed"
        elif count != expected:
            yield f"cell {position} was executed as number {count}, not {expected}: out of order"


def _lengths(notebook: Any) -> Iterator[str]:
    for position, cell in code_cells(notebook):
        lines = len(source_of(cell).strip().splitlines())
        if lines > MAX_LINES:
            yield f"cell {position} has {lines} lines of code, more than {MAX_LINES}"


def _outputs(notebook: Any) -> Iterator[str]:
    for position, cell in code_cells(notebook):
        for output in cell.get("outputs", []):
            if output["output_type"] == "error":
                yield f"cell {position} ended in {output['ename']}: {output['evalue']}"
                continue
            for mime, text in _texts(output):
                if text.startswith(ERROR_MARK):
                    yield f"cell {position}: {text.splitlines()[0]}"
                if mime == "application/vnd.jupyter.widget-view+json":
                    yield f"cell {position} stores a live widget, which no reader can show"
                elif found := MACHINE_PATHS.search(text):
                    yield f"cell {position} shows a path of one machine: {found[0]!r}"


def _texts(output: Any) -> Iterator[tuple[str, str]]:
    """`(MIME type, text)` of an output's parts that are text."""
    if output["output_type"] == "stream":
        text = output["text"]
        yield output["name"], text if isinstance(text, str) else "".join(text)
        return
    for mime, data in output.get("data", {}).items():
        if mime.startswith("image/") and mime != "image/svg+xml":
            continue  # base64
        is_text = isinstance(data, str) or (
            isinstance(data, list) and all(isinstance(line, str) for line in data)
        )
        yield mime, "".join(data) if is_text else json.dumps(data)
