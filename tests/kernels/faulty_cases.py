"""Ways to spoil the decode kernel's compilation, each by one change to a case that ships."""

from dataclasses import replace

from minillm_serve.kernels.compile_case import CompileCase

from minillm_serve.kernels import attention_cases


def compile_cases() -> list[CompileCase]:
    """One sound case, then one a fault."""
    shipped = {case.id: case for case in attention_cases.compile_cases()}
    sound = shipped["paged_decode bf16 D=128 P=16 @ sm_90"]
    fp32 = shipped["paged_decode fp32 D=64 P=16 @ sm_90"]
    widest = shipped["paged_decode fp32 D=256 P=16 window softcap @ sm_90"]
    return [
        replace(sound, name="sound"),
        replace(sound, name="strides of any size", strides_of_16=False),
        replace(sound, name="nine stages", num_stages=9),
        replace(widest, name="too few warps", num_warps=1),
        replace(fp32, name="no tensor cores", constexprs={**fp32.constexprs, "PRECISION": "ieee"}),
    ]
