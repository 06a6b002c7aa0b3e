"""How nbgrader makes a released notebook out of a solution: stubs that say what to write."""

from __future__ import annotations

import re
from typing import Any

from nbgrader.preprocessors import ClearSolutions, NbGraderPreprocessor

from minillm_serve.course.notebooks import tidy

_REGION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION: (?P<what>[^\n]+)\n.*?^[ \t]*### END SOLUTION[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
_TEXT_REGION = re.compile(
    r"^<!-- BEGIN SOLUTION -->$.*?^<!-- END SOLUTION -->$", re.DOTALL | re.MULTILINE
)
#: What stands in place of a written answer.
TEXT_STUB = "*Your answer here.*"


def stubbed(source: str) -> str:
    """A code cell with each solution replaced by a line that says what is to be written.

    The text behind `### BEGIN SOLUTION:` is what the stub's NotImplementedError says.
    """

    def stub(hit: re.Match[str]) -> str:
        indent, what = hit["indent"], hit["what"].strip()
        return f'{indent}# YOUR CODE HERE\n{indent}raise NotImplementedError("{what}")'

    return _REGION.sub(stub, source)


class Stubs(ClearSolutions):
    """nbgrader's own step, which then finds only malformed regions left, and refuses those."""

    def _replace_solution_region(self, cell: Any, language: str) -> bool:
        before = cell.source
        if cell.cell_type == "code":
            cell.source = stubbed(cell.source)
        else:
            cell.source = _TEXT_REGION.sub(TEXT_STUB, cell.source)
        leftover: bool = super()._replace_solution_region(cell, language)
        if leftover:
            raise ValueError(
                "a solution region does not begin with '### BEGIN SOLUTION: what to write' "
                f"(or '<!-- BEGIN SOLUTION -->' in text):\n{before}"
            )
        return bool(cell.source != before)


class Tidy(NbGraderPreprocessor):
    """Takes out what differs from run to run, and widgets' state, which may hold a solution."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """See `minillm_serve.course.notebooks.tidy`."""
        tidy(nb)
        return nb, resources
