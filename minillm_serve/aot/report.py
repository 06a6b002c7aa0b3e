"""What is kept of a compilation, and the limits that it must stay within."""

from dataclasses import asdict, dataclass, field
from typing import Any

from minillm_serve.kernels.compile_case import SHARED_LIMIT, CompileCase

#: Of the bytes that a kernel's loops load, what must come 16 at a time.
MIN_WIDE = 0.95


@dataclass(frozen=True)
class Compiled:
    """One kernel in one configuration, as compiled for one target.

    Attributes:
        id: of its `CompileCase`.
        target: same.
        num_warps: same.
        registers: a thread.
        spills: instructions that move registers out to memory and back.
        stack: bytes of memory a thread, where spilled registers go.
        shared: bytes of shared memory a program.
        wide_loads: share of the bytes loaded in loops that come 16 at a time; None if nothing is
            loaded.
        matrix: how often each matrix instruction appears, by name.
        listing: machine code, if asked for.
    """

    id: str
    target: str
    num_warps: int
    registers: int
    spills: int
    stack: int
    shared: int
    wide_loads: float | None
    matrix: dict[str, int]
    listing: str = field(default="", compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """What is committed: all but the listing."""
        content = asdict(self)
        del content["listing"]
        return content


def find_faults(case: CompileCase, compiled: Compiled) -> list[str]:
    """Checks a compilation against what its target and its case demand; empty if all is well."""
    faults = []
    if compiled.spills or compiled.stack:
        faults.append(
            f"spills registers ({compiled.spills} instructions, {compiled.stack} bytes a thread): "
            "make the tile smaller or use more warps"
        )
    if compiled.shared > SHARED_LIMIT[case.target]:
        faults.append(
            f"needs {compiled.shared} bytes of shared memory and {case.target} has "
            f"{SHARED_LIMIT[case.target]}: make the tile smaller or use fewer stages"
        )
    if case.uses_dot and not compiled.matrix:
        faults.append("has no matrix instruction: its dots run on ordinary units")
    if case.wide_loads and (compiled.wide_loads or 0) < MIN_WIDE:
        faults.append(
            f"loads {compiled.wide_loads or 0:.0%} of its bytes {case.load_bytes} at a time, not "
            f"{MIN_WIDE:.0%}: "
            "is the last stride 1, and are the others known to be multiples of 16?"
        )
    return [f"{case.id} {fault}" for fault in faults]
