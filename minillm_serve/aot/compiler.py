"""Compiles a described kernel for a GPU that need not be here, and reads what came out."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from minillm_serve.aot.machine_code import (
    matrix_instructions,
    parse,
    spill_instructions,
    wide_share,
)
from minillm_serve.aot.report import Compiled
from minillm_serve.kernels.compile_case import CompileCase


def compile_case(case: CompileCase) -> Compiled:
    """Compiles one case.

    Raises:
        KeyError: an argument of the kernel is not described.
        FileNotFoundError: NVIDIA's disassembler is neither in triton's wheel nor on the PATH.
    """
    binary = triton.compile(
        _describe(case),
        target=_target(case.target),
        options={
            "num_warps": case.num_warps,
            "num_stages": case.num_stages,
            "enable_fp_fusion": True,
        },
    )
    read = _read_amd if case.target.startswith("gfx") else _read_nvidia
    return read(case, binary)


def _describe(case: CompileCase) -> ASTSource:
    """Types, constants and known alignments of a kernel's arguments, as triton wants them."""
    names = case.kernel.arg_names
    signature, constexprs, attributes = {}, {}, {}
    for index, name in enumerate(names):
        is_plain_stride = name.startswith("stride_") and name not in case.scalars
        if name in case.constexprs:
            signature[name] = "constexpr"
            constexprs[(index,)] = case.constexprs[name]
        elif name in case.pointers:
            signature[name] = "*" + case.pointers[name]
        elif is_plain_stride:
            signature[name] = "i32"
        elif name in case.scalars:
            signature[name] = case.scalars[name]
        else:
            raise KeyError(f"{case.name}: nothing is said of the kernel's argument {name!r}")
        if name in case.pointers or (is_plain_stride and case.strides_of_16):
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(case.kernel, signature, constexprs, attributes)


def _target(name: str) -> GPUTarget:
    return (
        GPUTarget("hip", name, 64)
        if name.startswith("gfx")
        else GPUTarget("cuda", int(name[3:]), 32)
    )


def _read_nvidia(case: CompileCase, binary: Any) -> Compiled:
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(binary.asm["cubin"])
        usage = _run("cuobjdump", "--dump-resource-usage", str(cubin))
        text = _run("nvdisasm", "-c", str(cubin))
    numbers = {key: int(value) for key, value in re.findall(r"\b(REG|STACK):(\d+)", usage)}
    listing = parse(text, is_amd=False)
    return Compiled(
        id=case.id,
        target=case.target,
        num_warps=case.num_warps,
        registers=numbers["REG"],
        spills=spill_instructions(listing),
        stack=numbers["STACK"],
        shared=binary.metadata.shared,
        wide_loads=wide_share(listing, case.index_loads, case.load_bytes),
        matrix=matrix_instructions(listing),
        listing=text,
    )


def _read_amd(case: CompileCase, binary: Any) -> Compiled:
    text = binary.asm["amdgcn"]
    listing = parse(text, is_amd=True)

    def number(key: str) -> int:
        found = re.search(rf"\.{key}:\s*(\d+)", text)
        assert found, f"the assembly of {case.id} does not tell its {key}"
        return int(found[1])

    return Compiled(
        id=case.id,
        target=case.target,
        num_warps=case.num_warps,
        registers=number("vgpr_count"),
        spills=number(
            "vgpr_spill_count"
        ),  # scalar registers spill into lanes of vector ones: no memory
        stack=number("private_segment_fixed_size"),
        shared=binary.metadata.shared,
        wide_loads=wide_share(listing, case.index_loads, case.load_bytes),
        matrix=matrix_instructions(listing),
        listing=text,
    )


def _run(tool: str, *arguments: str) -> str:
    """Runs one of NVIDIA's tools: triton's wheel brings them, beside its assembler."""
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    path = shutil.which(tool, path=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}")
    if path is None:
        raise FileNotFoundError(
            f"{tool} is neither in triton {triton.__version__} nor on the PATH: "
            "install the CUDA toolkit, which brings it"
        )
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
