"""Compiles in a process of its own: one in which TRITON_INTERPRET=1 was set cannot compile."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

from minillm_serve.aot.report import Compiled
from minillm_serve.kernels.compile_case import CompileCase


class CompileError(RuntimeError):
    """The compiler refused a kernel, or died of it; the message ends with what it said."""


def compile_in_child(
    modules: Collection[str],
    ids: Collection[str] | None = None,
    *,
    listings: bool = False,
    timeout: float = 1200,
) -> list[Compiled]:
    """Compiles the cases of some modules in a fresh process, which does not interpret.

    Args:
        modules: names of modules that have a `compile_cases()`, or paths of such files.
        ids: of the cases to compile; all, if None.
        listings: keep the machine code too.
        timeout: seconds.

    Raises:
        CompileError: see there.
    """
    request = json.dumps({"modules": list(modules), "ids": ids and list(ids), "listings": listings})
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "minillm_serve.aot.child"],
        input=request,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode != 0:
        raise CompileError(f"compiling {', '.join(modules)} failed:\n{done.stderr[-4000:]}")
    return [Compiled(**content) for content in json.loads(done.stdout.splitlines()[-1])]


def load_cases(modules: Collection[str]) -> list[CompileCase]:
    """The cases of some modules (names, or paths of files)."""
    return [case for name in modules for case in _load(name).compile_cases()]


def _load(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None:
        raise CompileError(f"{name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # triton looks a kernel's globals up there
    spec.loader.exec_module(module)
    return module


def _main() -> None:
    from minillm_serve.aot.compiler import compile_case

    request = json.load(sys.stdin)
    results = []
    for case in load_cases(request["modules"]):
        if request["ids"] is None or case.id in request["ids"]:
            compiled = compile_case(case)
            content = {**compiled.to_json(), "listing": compiled.listing * request["listings"]}
            results.append(content)
    print(json.dumps(results))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _main()
