"""The canary kernel, in fresh processes where the moment of a variable matters (B134)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minillm_serve.kernels import canary
from tests.house.tree import ROOT

CHECK = """
from minillm_serve.kernels.canary import CanaryError, check_canary
try:
    print("sang", check_canary("cpu"))
except CanaryError as error:
    print("died", error)
"""
ON_A_GPU = """
from minillm_serve.kernels.canary import canary_kernel, explain_unrunnable
print("on a GPU", explain_unrunnable(canary_kernel, "cuda"))
"""
SET = "import os; os.environ['TRITON_INTERPRET'] = '1'\n"


def run(code: str, *, interpret: bool, path: Path | None = None) -> str:
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join(str(p) for p in (path, ROOT) if p)
    if interpret:
        env["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_canary_expects_is_what_torch_computes() -> None:
    a = torch.tensor([[canary._a(i, k) for k in range(canary.INNER)] for i in range(canary.ROWS)])
    b = torch.tensor([[canary._b(k, j) for j in range(canary.ROWS)] for k in range(canary.INNER)])
    c = a @ b
    assert canary.expected() == (c.sum(1) + c.max(1).values).tolist()
    assert min(canary.expected()) > 0  # so that zeros, and what was never written, stand out


def test_the_canary_sings_in_the_interpreter() -> None:
    assert "sang CanaryReport" in run(CHECK, interpret=True)


def test_b134_the_variable_set_before_everything_else_is_in_time() -> None:
    assert "mode='interpreted'" in run(SET + CHECK, interpret=False)


def test_b134_the_variable_never_set_is_named_with_its_remedy() -> None:
    said = run(CHECK + ON_A_GPU, interpret=False)
    assert said.startswith("died Triton kernels on a CPU need Triton's interpreter.")
    assert "set TRITON_INTERPRET=1 before the first import" in said
    assert said.endswith("on a GPU None\n")  # there the same kernel may be launched


@pytest.mark.parametrize(
    "first",
    ["import triton\n", "import minillm_serve.kernels.canary\n"],
    ids=["after triton", "after the kernels"],
)
def test_b134_the_variable_set_too_late_is_said_to_be_too_late(first: str) -> None:
    said = run(first + SET + CHECK, interpret=False)
    assert said.startswith("died TRITON_INTERPRET=1 was set too late")
    assert "Restart Python" in said


# A Triton whose kernels run without an error and do not compute.
SILENT_TRITON = """
__version__ = "0.0.0"
def jit(function):
    class Kernel:
        def __getitem__(self, grid):
            def launch(a, b, out, *args, **kwargs):
                {body}
            return launch
    return Kernel()
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("out.zero_()", "ran without an error and returned only zeros"),
        ("raise TypeError('no such thing')", "failed: TypeError: no such thing"),
    ],
    ids=["silent zeros", "an error"],
)
def test_an_interpreter_that_lies_is_found_out(tmp_path: Path, body: str, words: str) -> None:
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text(SILENT_TRITON.format(body=body))
    (package / "language.py").write_text("constexpr = int\ndef zeros(*args): pass\n")
    (package / "runtime.py").write_text("class JITFunction: pass\n")
    said = run(CHECK, interpret=True, path=tmp_path)
    assert said.startswith("died The canary kernel")
    assert words in said


def test_each_kind_of_wrong_result_has_its_own_words() -> None:
    assert "wrote nothing" in canary._describe_difference([-1.0] * canary.ROWS)
    assert "returned [7.0, 7.0" in canary._describe_difference([7.0] * canary.ROWS)
