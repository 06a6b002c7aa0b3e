"""Compiles a reader's own kernel for GPUs that need not be here."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

from minillm_serve.aot import compile_in_child
from minillm_serve.course.chapter03.machine import HEADER, Machine, row
from minillm_serve.course.chapter03.shown import Shown, table

TARGETS = ("sm_90", "gfx942")
_CASES = '''

import torch
import triton
import triton.language as tl
from minillm_serve.kernels.compile_case import CompileCase

{sources}


def compile_cases():
    """Llama-3-8B's heads, blocks of 16 tokens, bf16."""
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "bf16")
    pointers |= dict.fromkeys(("table_ptr", "lens_ptr"), "i32")
    sizes = {{"P": 16, "D": 128, "D_PADDED": 128, "GROUP": 4, "ROWS": 16}}
    return [
        CompileCase(
            name="yours",
            kernel={kernel},
            target=target,
            pointers=pointers,
            scalars={{"scale": "fp32"}},
            constexprs=sizes,
        )
        for target in {targets}
    ]
'''


def compile_yours(*functions: Any) -> Shown:
    """Says what the compiler makes of a decode kernel, for an H100 and an MI300.

    Args:
        *functions: `@triton.jit` functions that it is made of; the kernel itself comes last. Its
            arguments are those of ex03.

    Raises:
        CompileError: the compiler refuses it; the message ends with what it says.
    """
    sources = "\n\n".join(inspect.getsource(function.fn) for function in functions)
    kernel = functions[-1].fn.__name__
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "your_kernel.py")
        text = _CASES.format(sources=sources, kernel=kernel, targets=TARGETS)
        file.write_text(text.lstrip(), encoding="utf-8")
        compiled = compile_in_child([str(file)], listings=True)
    machines = [Machine(f"{kernel} on {one.target}", one) for one in compiled]
    return table(["kernel", *HEADER[1:]], [row(machine) for machine in machines])
