"""Two ways to spoil a good stage, for the chapter: what the compiler makes of them."""

from __future__ import annotations

from dataclasses import replace

from minillm_serve.course.chapter03.stages import STAGES
from minillm_serve.kernels.compile_case import CompileCase

TARGET = "sm_90"


def compile_cases() -> list[CompileCase]:
    """Stage 4 with strides that may be anything; stage 3 with a tile too large for its threads."""
    group, online = (STAGES[i].compile_case(TARGET) for i in (3, 2))
    return [
        replace(group, name="stage 4, strides unknown", strides_of_16=False),
        replace(online, name="stage 3, P = 64", constexprs={**online.constexprs, "P": 64}),
    ]
