"""How a kernel is described to the compiler where there is no tensor, and no GPU, to describe it.

Every file with Triton kernels has a function `compile_cases()`, which lists the configurations that
its launcher would choose, the commonest first. `python -m minillm_serve.aot` compiles all of them.
"""

from dataclasses import dataclass
from typing import Any

import torch

#: Where kernels must compile: A100, H100 and H200, B200, and AMD's MI300.
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
#: Bytes of shared memory that one program can have. The compiler does not enforce it.
SHARED_LIMIT = {
    "sm_80": 163 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "gfx942": 64 * 1024,
}

#: How signatures name dtypes.
SHORT_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class CompileCase:
    """One kernel in one configuration for one target.

    Attributes:
        name: what and in which configuration; unique together with the target.
        kernel: what `@triton.jit` returned.
        target: one of `TARGETS`.
        pointers: Triton type of what each pointer argument points at, such as "bf16" or "i32".
            Their addresses are multiples of 16, as torch's are.
        scalars: Triton type of each run-time scalar. Arguments that start with `stride_` are left
            out: they are i32, and multiples of 16.
        constexprs: value of each compile-time argument; None for a pointer that is not given.
        num_warps: groups of 32 (AMD: 64) threads that share a program.
        num_stages: loop iterations that are in flight at once.
        uses_dot: the target's matrix instruction must appear.
        wide_loads: bytes that its loops load (all of it, if it has none) must come 16 at a time,
            nearly all of them.
        load_bytes: so many bytes at a time are enough, where 16 are out of reach.
        index_loads: 4-byte loads in its loops, per thread, that are not counted there, since they
            fetch an index or a number a row.
        strides_of_16: False to see what is lost where strides are not known to be multiples of 16.
    """

    name: str
    kernel: Any
    target: str
    pointers: dict[str, str]
    scalars: dict[str, str]
    constexprs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    uses_dot: bool = False
    wide_loads: bool = True
    load_bytes: int = 16
    index_loads: int = 0
    strides_of_16: bool = True

    @property
    def id(self) -> str:
        """The case's key in the committed table."""
        return f"{self.name} @ {self.target}"
