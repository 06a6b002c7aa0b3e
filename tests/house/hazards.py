"""Which test guards against which hazard: `python -m tests.house.hazards` lists them.

A test names a hazard by its id, in its own name (`..._b43`) or in its docstring.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.house.tree import ROOT

TABLE = Path(__file__).with_name("hazards.toml")
_ID = re.compile(r"(?<![A-Za-z0-9])[Bb](\d{2,3})(?![A-Za-z0-9])")


@dataclass
class Hazard:
    """A fault of a known kind.

    Attributes:
        subject: what goes wrong.
        area: of the engine.
        reason: why no test names it; "" if one should.
        tests: those that do.
    """

    subject: str
    area: str
    reason: str = ""
    tests: list[str] = field(default_factory=list)


def read_table(text: str) -> dict[str, Hazard]:
    """The hazards by id.

    Raises:
        ValueError: an id stands twice, or a reason is given for one that is unknown.
    """
    areas = tomllib.loads(text)
    reasons = areas.pop("reasons", {})
    hazards: dict[str, Hazard] = {}
    for area, subjects in areas.items():
        for name, subject in subjects.items():
            if name in hazards:
                raise ValueError(f"{name} stands under {hazards[name].area!r} and {area!r}")
            hazards[name] = Hazard(subject, area, reasons.pop(name, ""))
    if reasons:
        raise ValueError(f"reasons for ids that are unknown: {', '.join(reasons)}")
    return hazards


def named_in(source: str) -> Iterable[tuple[str, str]]:
    """Each (test, id) of a test file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for number in sorted(set(_ID.findall(f"{node.name} {ast.get_docstring(node) or ''}"))):
                yield node.name, f"B{number}"


def find_tests(hazards: Mapping[str, Hazard], files: Iterable[Path]) -> list[str]:
    """Notes with each hazard the tests that name it.

    Returns:
        Tests that name an id which is none.
    """
    lost = []
    for file in files:
        for test, name in named_in(file.read_text("utf-8")):
            where = f"{file.relative_to(ROOT).as_posix()}::{test}"
            if name in hazards:
                hazards[name].tests.append(where)
            else:
                lost.append(f"{where} ({name})")
    return lost


def faults(hazards: Mapping[str, Hazard]) -> list[str]:
    """What is wrong with the table: ids without a test or a reason, or with both."""
    found = []
    for name, hazard in hazards.items():
        if not hazard.tests and not hazard.reason:
            found.append(f"{name} ({hazard.subject}): no test names it, and no reason is given")
        if hazard.tests and hazard.reason:
            found.append(f"{name}: {hazard.tests[0]} names it now, so delete its reason")
    return found


def main() -> int:
    """Prints every hazard with its tests; 1 if something is wrong."""
    hazards = read_table(TABLE.read_text("utf-8"))
    lost = find_tests(hazards, sorted((ROOT / "tests").rglob("test_*.py")))
    for name, hazard in hazards.items():
        print(f"{name}  {hazard.area}: {hazard.subject}")
        for line in hazard.tests or [f"no test: {hazard.reason or 'WHY?'}"]:
            print(f"      {line}")
    num_named = sum(bool(hazard.tests) for hazard in hazards.values())
    print(f"\n{num_named} of {len(hazards)} hazards are named by tests.")
    wrong = [*faults(hazards), *(f"no hazard has the id that {test} names" for test in lost)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
