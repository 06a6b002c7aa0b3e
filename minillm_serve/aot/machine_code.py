"""Reads the machine code of a kernel: loads and their widths, matrix instructions, spills.

NVIDIA's is what `nvdisasm` prints of a cubin (SASS), AMD's is the assembly that LLVM writes. Both
are lists of instructions with labels. A loop is what lies between a label and a later branch back
to it, unless the end of the program lies in between: then it is the way back from code that was
moved out of line.
"""

import re
from collections import Counter
from dataclasses import dataclass

_SASS_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)([^;]*);")
_SASS_LABEL = re.compile(r"^\s*(\.L_\w+):")
_SASS_LOAD = re.compile(r"(LDG|LDGSTS)(?=\.|$)")
_SASS_SPILL = re.compile(r"(LDL|STL)(?=\.|$)")
_SASS_MATRIX = re.compile(r"[A-Z]*MMA(?=\.|$)")
_SASS_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}

_AMD_LINE = re.compile(r"^\s+()([a-z]\w+)([^;]*)")
_AMD_LABEL = re.compile(r"^(\.LBB\w+):")
_AMD_LOAD = re.compile(r"(?:global|buffer|flat)_load_(?:lds_)?(\w+)")
_AMD_MATRIX = re.compile(r"v_(?:mfma|smfmac)_\w+")
_AMD_BYTES = {"dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}


@dataclass(frozen=True)
class Instruction:
    """One machine instruction: its name, and what follows on the line."""

    name: str
    operands: str


@dataclass(frozen=True)
class Listing:
    """A kernel's instructions, and its loops as ranges first .. last of their numbers."""

    instructions: list[Instruction]
    loops: list[tuple[int, int]]

    def looped(self) -> list[Instruction]:
        """Instructions that lie in a loop."""
        inside = {i for first, last in self.loops for i in range(first, last + 1)}
        return [self.instructions[i] for i in sorted(inside)]


def parse(text: str, is_amd: bool) -> Listing:
    """Splits a listing into instructions and finds its loops."""
    line_pattern, label_pattern = (_AMD_LINE, _AMD_LABEL) if is_amd else (_SASS_LINE, _SASS_LABEL)
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    loops = []
    end = -1
    for line in text.splitlines():
        if label := label_pattern.match(line):
            labels[label[1]] = len(instructions)
        elif found := line_pattern.search(line):
            predicate, name, operands = found.groups()
            target = re.search(r"\.L\w+", operands)
            if name in ("EXIT", "s_endpgm") and not predicate:
                end = len(instructions)
            elif target and labels.get(target[0], -1) > end:
                loops.append((labels[target[0]], len(instructions)))
            instructions.append(Instruction(name, operands.strip()))
    return Listing(instructions, loops)


def load_bytes(name: str) -> int:
    """Bytes that an instruction loads from global memory, a thread; 0 if it is no such load."""
    if _SASS_LOAD.match(name):
        return next((_SASS_BYTES[part] for part in name.split(".") if part in _SASS_BYTES), 4)
    if found := _AMD_LOAD.match(name):
        return _AMD_BYTES.get(found[1], 2 if "short" in found[1] else 1)
    return 0


def wide_share(listing: Listing, index_loads: int, width: int = 16) -> float | None:
    """Of the bytes that loops load, the share that comes 16 at a time; None if nothing is loaded.

    A kernel whose loops load nothing is judged by all of it.

    Args:
        listing: of the kernel.
        index_loads: so many loads of 4 or 8 bytes are not counted, since they fetch indices.
        width: so many at a time count as well.
    """
    for instructions in (listing.looped(), listing.instructions):
        sizes = Counter(load_bytes(instruction.name) for instruction in instructions)
        del sizes[0]
        if sizes:
            break
    for size in (size for size in (8, 4) if size < width):
        indices = min(sizes[size], index_loads)
        sizes[size] -= indices
        index_loads -= indices
    total = sum(size * count for size, count in sizes.items())
    wide = sum(size * count for size, count in sizes.items() if size >= width)
    return wide / total if total else None


def matrix_instructions(listing: Listing) -> dict[str, int]:
    """How often each matrix instruction appears."""
    names = (instruction.name for instruction in listing.instructions)
    return dict(
        Counter(name for name in names if _SASS_MATRIX.match(name) or _AMD_MATRIX.match(name))
    )


def spill_instructions(listing: Listing) -> int:
    """Moves between registers and a thread's own memory, for SASS. (AMD's compiler tells them.)"""
    return sum(bool(_SASS_SPILL.match(i.name)) for i in listing.instructions)
