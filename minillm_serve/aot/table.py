"""The committed table of compilations: `kernels/compiled.json`, and `compiled.md` for reading."""

import json
from collections import Counter
from pathlib import Path

import triton

from minillm_serve.aot.report import Compiled
from minillm_serve.kernels import compile_case
from minillm_serve.kernels.compile_case import SHARED_LIMIT

FOLDER = Path(compile_case.__file__).parent
JSON, MARKDOWN = FOLDER / "compiled.json", FOLDER / "compiled.md"

_HEAD = """# What the compiler makes of the kernels

Written by `python -m minillm_serve.aot --update` with triton {version}; nothing here was run on a
GPU. "Wide" is the share of the bytes loaded in loops that come 16 at a time. No kernel spills
registers.
"""


def kernel_modules() -> list[str]:
    """Modules of all kernel files that describe their configurations."""
    files = sorted(FOLDER.glob("*.py"))
    return [
        f"minillm_serve.kernels.{path.stem}"
        for path in files
        if "\ndef compile_cases()" in path.read_text("utf-8")
    ]


def write(compiled: list[Compiled]) -> None:
    """Replaces both files."""
    content = {
        "triton": triton.__version__,
        "cases": {one.id: one.to_json() for one in sorted(compiled, key=lambda one: one.id)},
    }
    JSON.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    MARKDOWN.write_text(_render(compiled), "utf-8")


def read() -> tuple[str, dict[str, Compiled]]:
    """The committed table: triton's version, and what it made of each case, by id."""
    content = json.loads(JSON.read_text("utf-8"))
    return content["triton"], {key: Compiled(**one) for key, one in content["cases"].items()}


def find_changes(compiled: list[Compiled]) -> list[str]:
    """What differs from the committed table, if the same triton wrote it; empty if nothing does.

    Another version of triton allots registers differently, so then there is nothing to compare
    with.
    """
    version, committed = read()
    changes = []
    for one in compiled:
        if one.id not in committed:
            changes.append(f"{one.id} is not in the table")
        elif version == triton.__version__ and one != committed[one.id]:
            before, after = committed[one.id].to_json(), one.to_json()
            parts = [
                f"{key} {before[key]} -> {after[key]}" for key in after if before[key] != after[key]
            ]
            changes.append(f"{one.id}: {', '.join(parts)}")
    return changes


def _render(compiled: list[Compiled]) -> str:
    lines = [_HEAD.format(version=triton.__version__)]
    for target in sorted({one.target for one in compiled}, key=list(SHARED_LIMIT).index):
        lines += [
            f"## {target}: {SHARED_LIMIT[target] // 1024} KiB of shared memory\n",
            "| kernel | warps | registers | shared, KiB | wide | matrix instructions |",
            "| --- | --: | --: | --: | --: | --- |",
        ]
        for one in sorted(compiled, key=lambda one: one.id):
            if one.target == target:
                lines.append(_row(one))
        lines.append("")
    return "\n".join(lines)


def _row(one: Compiled) -> str:
    families: Counter[str] = Counter()
    for name, count in one.matrix.items():
        families[name.split(".")[0]] += count
    matrix = ", ".join(f"{count} {name}" for name, count in families.items()) or "-"
    wide = "-" if one.wide_loads is None else f"{one.wide_loads:.0%}"
    kernel = one.id.split(" @ ")[0]
    return (
        f"| {kernel} | {one.num_warps} | {one.registers} | {one.shared / 1024:.0f} "
        f"| {wide} | {matrix} |"
    )
