"""What the compiler made of the stages: tables and excerpts of real machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from minillm_serve.aot import Compiled, compile_in_child
from minillm_serve.aot.machine_code import Listing, load_bytes, parse
from minillm_serve.course.chapter03 import spoiled, stages
from minillm_serve.course.chapter03.stages import (
    COMPILED_GROUP,
    COMPILED_P,
    COMPILED_TARGETS,
    STAGES,
    Stage,
)

SHIPPED_MODULE = "minillm_serve.kernels.attention_cases"
SHIPPED_NAME = "paged_decode bf16 D=128 P=16"

#: What an instruction is for, by the beginning of its name: those that say most about a kernel.
_TELLING = {
    r"LDGSTS": "memory -> shared memory, while others go on",
    r"LDG(?=\.)|global_load|buffer_load": "memory -> registers",
    r"LDSM?(?=\.|$)|ds_read": "shared memory -> registers",
    r"STSM?(?=\.|$)|ds_write": "registers -> shared memory",
    r"H?MMA|v_mfma": "tensor core",
    r"MUFU\.EX2|v_exp": "a power of 2",
    r"SHFL|ds_bpermute": "thread to thread: a sum or a maximum",
    r"LDL|STL": "a register that is kept in memory: spilled",
}


@dataclass(frozen=True)
class Machine:
    """A kernel as compiled.

    Attributes:
        name: as `CompileCase.name`.
        compiled: what was read from it.
    """

    name: str
    compiled: Compiled

    @property
    def target(self) -> str:
        """GPU that it was compiled for."""
        return self.compiled.target

    @property
    def listing(self) -> Listing:
        """Its instructions."""
        return parse(self.compiled.listing, self.target.startswith("gfx"))

    def loads(self) -> dict[int, int]:
        """Bytes a thread -> how many loads of that width its loops hold, widest first."""
        sizes = Counter(load_bytes(one.name) for one in self.listing.looped())
        return {size: sizes[size] for size in sorted(sizes, reverse=True) if size}

    def matrix(self) -> str:
        """Its matrix instructions by family; "-" for none."""
        families: Counter[str] = Counter()
        for name, count in self.compiled.matrix.items():
            families[re.split(r"[._](?=\d|16)", name.removeprefix("v_"))[0]] += count
        return ", ".join(f"{count} {name}" for name, count in families.items()) or "-"

    def loop_instructions(self) -> int:
        """Instructions of its loops, a thread."""
        return len(self.listing.looped())

    def digest(self) -> str:
        """The telling instructions of its loops, by name: how many, the first one, what they do."""
        found: dict[str, list[str]] = {}
        loop = self.listing.looped()
        for one in loop:
            if telling(one.name):
                found.setdefault(one.name, []).append(f"{one.name} {one.operands}")
        told = sum(len(lines) for lines in found.values())
        shown = [
            f"{len(lines):>4} × {lines[0]:<58.58} ; {telling(name)}"
            for name, lines in found.items()
        ]
        rest = f"{len(loop) - told:>4} others: addresses, masks, conversions, arithmetic"
        return "\n".join([f"{self.name} @ {self.target}", *shown, rest])

    def excerpt(self, around: str, lines: int = 12) -> str:
        """Consecutive instructions of its loops, from shortly before the first named so."""
        loop = self.listing.looped()
        first = next((i for i, one in enumerate(loop) if around in one.name), 2)
        chosen = loop[max(first - 2, 0) :][:lines]
        return "\n".join(f"{one.name} {one.operands}" for one in chosen)


def telling(name: str) -> str | None:
    """What an instruction is for, if it is one of those that say most."""
    return next((note for key, note in _TELLING.items() if re.match(key, name)), None)


def start_compiling() -> Future[list[Machine]]:
    """Compiles all of the chapter's kernels in a process beside this one.

    Returns:
        The kernels, once they are there: stages by target, then those that are spoiled.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
    future = pool.submit(_compile)
    pool.shutdown(wait=False)
    return future


def _compile() -> list[Machine]:
    names = (stages.__name__, spoiled.__name__, SHIPPED_MODULE)
    wanted = [case.id for case in stages.compile_cases() + spoiled.compile_cases()]
    wanted += [f"{SHIPPED_NAME} @ {target}" for target in COMPILED_TARGETS]
    found = compile_in_child(names, wanted, listings=True)
    return [Machine(one.id.rpartition(" @ ")[0], one) for one in found]


def find(machines: Sequence[Machine], stage: Stage | str, target: str = "sm_90") -> Machine:
    """The machine code of a stage, or of the case of that name.

    Raises:
        KeyError: it was not compiled.
    """
    name = f"stage {stage.title}" if isinstance(stage, Stage) else stage
    for machine in machines:
        if (machine.name, machine.target) == (name, target):
            return machine
    raise KeyError(f"no {name!r} for {target}: there are {[m.compiled.id for m in machines]}")


def rows(machines: Sequence[Machine], target: str) -> list[list[str]]:
    """A table: name, registers, spills, shared memory, loads by width, matrix instructions."""
    found = [find(machines, stage, target) for stage in STAGES]
    found.append(find(machines, SHIPPED_NAME, target))
    return [row(machine) for machine in found]


HEADER = [
    "stage",
    "registers (a thread)",
    "spills",
    "shared memory",
    "loads in the loop (bytes a thread)",
    "matrix instructions",
]


def row(machine: Machine) -> list[str]:
    """One row of that table."""
    made = machine.compiled
    name = "*as shipped*" if machine.name == SHIPPED_NAME else machine.name.removeprefix("stage ")
    widths = ", ".join(f"{count} × {size} B" for size, count in machine.loads().items())
    shared = f"{made.shared / 1024:.1f} KiB" if made.shared else "-"
    spilled = f"**{made.spills}**" if made.spills else "0"
    return [name, str(made.registers), spilled, shared, widths, machine.matrix()]


def instructions_per_token(machine: Machine) -> float:
    """Loop instructions of all warps of a program, for each token and each query head served."""
    number = next(s.number for s in STAGES if machine.name == f"stage {s.title}")
    tokens = 1 if number == 1 else COMPILED_P
    heads = 1 if number < 4 else COMPILED_GROUP
    return machine.loop_instructions() * machine.compiled.num_warps / (tokens * heads)
