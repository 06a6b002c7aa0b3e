"""A learner's notebook as a program: the cells that a grader runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Cells that only show something (an engine at work, a plot): not run when graded.
DEMO = "demo"
_SIZE_LIMIT = 20 * 2**20


class NotebookError(ValueError):
    """A file is no notebook; the message says which and why."""


def read_notebook(path: Path) -> dict[str, Any]:
    """A notebook as JSON.

    Raises:
        NotebookError: it is missing, too large, or no notebook.
    """
    if not path.is_file():
        raise NotebookError(f"there is no notebook {path}")
    if path.stat().st_size > _SIZE_LIMIT:
        raise NotebookError(f"{path.name} has more than 20 MiB: clear its outputs")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotebookError(f"{path.name} cannot be opened: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise NotebookError(
            f"{path.name} is no notebook: it does not hold JSON, as Jupyter saves it"
        ) from error
    try:
        whole = all(isinstance(source_of(cell), str) for cell in notebook["cells"])
    except (KeyError, TypeError):
        whole = False
    if not whole:
        raise NotebookError(
            f"{path.name} is no notebook: it has no cells with sources, as Jupyter saves them"
        )
    return dict(notebook)


def source_of(cell: Mapping[str, Any]) -> str:
    """A cell's text, whether it is stored whole or as lines."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def grading_of(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """nbgrader's metadata of a cell; empty if it has none."""
    found = cell.get("metadata", {}).get("nbgrader", {})
    return found if isinstance(found, Mapping) else {}


def program(notebook: Mapping[str, Any]) -> list[str]:
    """Sources of the cells to run, in order: the learner's and the givens, no checks, no demos."""
    return list(_runnable(notebook))


def _runnable(notebook: Mapping[str, Any]) -> Iterator[str]:
    for cell in notebook["cells"]:
        tags = cell.get("metadata", {}).get("tags", [])
        if cell.get("cell_type") != "code" or grading_of(cell).get("grade") or DEMO in tags:
            continue
        yield "\n".join(_without_magic(line) for line in source_of(cell).split("\n"))


def _without_magic(line: str) -> str:
    """IPython's own commands are for people: `%timeit` and `!pip` are no part of an answer."""
    start = line.lstrip()
    if start.startswith(("%", "!")):
        return f"{line[: len(line) - len(start)]}pass  # {start}"
    return line
