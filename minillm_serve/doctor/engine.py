"""Checks of what the engine stands on: Python, torch, Triton, Numba, transformers, GGUF."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from .probe import Probe
from .report import Check, Status

GROUP = "Engine"
# In a checkout the versions that are known to work together are at hand.
_IS_CHECKOUT = (Path(__file__).resolve().parents[2] / "constraints.txt").is_file()
_INSTALL = "pip install -c constraints.txt" if _IS_CHECKOUT else "pip install"
_REINSTALL = f"{_INSTALL} --force-reinstall --no-deps"


def check_python(version: tuple[int, int, int] | None = None) -> Check:
    """Check this interpreter's version; `version` stands in for another one."""
    version = version or (sys.version_info[0], sys.version_info[1], sys.version_info[2])
    text = ".".join(str(part) for part in version)
    if version < (3, 11, 0):
        remedy = "install Python 3.11 or newer and make the environment again with it"
        return Check(GROUP, "python", Status.FAIL, f"{text}; 3.11 or newer is needed", remedy)
    return Check(GROUP, "python", Status.OK, f"{text} on {platform.system()} {platform.machine()}")


def check_torch(probe: Probe) -> Check:
    """Check that torch imports and multiplies on the CPU."""
    if probe.error:
        return _broken("torch", probe, Status.FAIL)
    data = probe.data
    build = f"CUDA {data['cuda']}" if data["cuda"] else "CPU"
    build = f"ROCm {data['hip']}" if data["hip"] else build
    found = f"{data['version']}, {build} build, {data['threads']} CPU threads"
    return Check(GROUP, "torch", Status.OK, found)


def check_package(name: str, probe: Probe) -> Check:
    """Check a package without which the engine cannot start (numpy, transformers)."""
    if probe.error:
        hint = ""
        if "kernels" in probe.error:
            hint = "Is a folder or package called `kernels` on the path? It hides Hugging Face's. "
        return _broken(name, probe, Status.FAIL, hint)
    return Check(GROUP, name, Status.OK, probe.data["version"])


def check_triton(probe: Probe, *, has_gpu: bool, system: str | None = None) -> Check:
    """Check the canary kernel's result.

    Args:
        probe: what the `canary` probe reported.
        has_gpu: whether torch sees a GPU; without one the engine works without Triton.
        system: `platform.system()`, where another one is to be stood in for.
    """
    system = system or platform.system()
    status = Status.FAIL if has_gpu else Status.WARN
    if probe.missing == "triton":
        if system != "Linux":
            found = f"not installed: Triton has no wheels for {system}"
            return Check(GROUP, "triton", Status.OK, f"{found}; the other backends work")
        remedy = f"{_INSTALL} triton (the engine's other backends work without)"
        return Check(GROUP, "triton", Status.WARN, "not installed", remedy)
    if probe.missing is not None:
        found = f"not checked: {probe.missing} is not installed"
        return Check(GROUP, "triton", Status.WARN, found, "see the lines above")
    if probe.error:
        remedy = f"{_REINSTALL} torch triton numpy. (Triton 3.6's interpreter needs numpy < 2.4.)"
        return Check(GROUP, "triton", status, probe.error, remedy)
    data = probe.data
    where = "compiled for the GPU" if data["mode"] == "compiled" else "in the interpreter"
    found = f"{data['triton_version']}, canary kernel correct, {where}"
    if has_gpu and data["mode"] == "interpreted":
        remedy = "unset TRITON_INTERPRET: with it the GPU is not used by any Triton kernel"
        return Check(GROUP, "triton", Status.WARN, found, remedy)
    return Check(GROUP, "triton", Status.OK, found)


def check_numba(probe: Probe) -> Check:
    """Check that Numba compiles; without it the engine has its torch backends."""
    if probe.error:
        return _broken("numba", probe, Status.WARN, "The CPU kernels need it. ")
    found = f"{probe.data['version']}, compiles, {probe.data['threads']} threads"
    return Check(GROUP, "numba", Status.OK, found)


def check_gguf(probe: Probe) -> Check:
    """Check what converts the embedded model and reads .gguf files."""
    if probe.error:
        why = "Only safetensors models can be loaded without it. "
        return _broken("gguf", probe, Status.WARN, why)
    found = f"{probe.data['version']}, with accelerate {probe.data['accelerate']}"
    return Check(GROUP, "gguf", Status.OK, found)


def _broken(name: str, probe: Probe, status: Status, hint: str = "") -> Check:
    """Word an import that failed: the package itself is absent, or something in it is broken."""
    if probe.missing is not None:
        return Check(
            GROUP,
            name,
            status,
            f"{probe.missing} is not installed",
            f"{hint}{_INSTALL} {probe.missing}",
        )
    return Check(GROUP, name, status, probe.error or "", f"{hint}{_REINSTALL} {name}")
