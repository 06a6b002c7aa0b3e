"""Ahead-of-time compilation: what the compiler makes of the Triton kernels, without a GPU.

`python -m minillm_serve.aot` compiles every configuration that the launchers would choose, for four
kinds of GPU, reads registers, spills, shared memory, load widths and matrix instructions from the
machine code, and compares them with the table that is committed in `kernels/compiled.json`.
"""

from minillm_serve.aot.child import CompileError, compile_in_child
from minillm_serve.aot.report import Compiled

__all__ = ["CompileError", "Compiled", "compile_in_child"]
