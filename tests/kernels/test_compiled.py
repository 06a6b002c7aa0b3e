"""What the compiler makes of the kernels for real GPUs: within limits, and as committed.

If a change here is meant, `python -m minillm_serve.aot --update` writes the table anew; its
difference then shows in review.
"""

import json
import os
import subprocess
import sys

import pytest
import triton
from minillm_serve.kernels.compile_case import TARGETS

from minillm_serve.aot import CompileError, compile_in_child, table
from minillm_serve.aot.child import load_cases
from minillm_serve.aot.machine_code import load_bytes, parse, wide_share
from minillm_serve.aot.report import find_faults

CASES = {case.id: case for case in load_cases(table.kernel_modules())}
FAULTY = {case.name: case for case in load_cases(["tests.kernels.faulty_cases"])}


#: The first case that each kernel lists for a target.
COMMONEST = {
    next(one.id for one in CASES.values() if (one.kernel, one.target) == (case.kernel, case.target))
    for case in CASES.values()
} | {key for key in CASES if key.startswith("paged_decode bf16 D=128 P=16 int8 @")}


def compile_and_compare(ids):
    compiled = compile_in_child(table.kernel_modules(), ids)
    assert {one.id for one in compiled} == set(ids)
    faults = [fault for one in compiled for fault in find_faults(CASES[one.id], one)]
    assert faults == []
    assert table.find_changes(compiled) == []


def test_the_commonest_shape_of_each_kernel_compiles_well_and_as_committed():
    compile_and_compare(COMMONEST)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_other_shapes_compile_well_and_as_committed():
    compile_and_compare(sorted(CASES.keys() - COMMONEST))


def test_the_committed_table_holds_each_case_that_ships_and_no_other():
    assert len(CASES) == len(load_cases(table.kernel_modules()))  # no id twice
    _, committed = table.read()
    assert sorted(committed) == sorted(CASES)


def test_what_is_committed_breaks_no_limit_on_any_target():
    _, committed = table.read()
    assert {one.target for one in committed.values()} == set(TARGETS)
    faults = [fault for key, one in committed.items() for fault in find_faults(CASES[key], one)]
    assert faults == []


def test_each_kernel_with_a_dot_runs_it_on_each_targets_matrix_units():
    _, committed = table.read()
    found = {target: set() for target in TARGETS}
    for key, one in committed.items():
        if CASES[key].uses_dot:
            found[one.target] |= {name.split(".")[0] for name in one.matrix}
    assert found["sm_80"] == {"HMMA"}
    assert "HGMMA" in found["sm_90"]
    assert "UTCHMMA" in found["sm_100"]
    assert all(name.startswith("v_mfma") for name in found["gfx942"])


RUN_TIME_INTEGERS = """
import json
from minillm_serve.kernels.attention_cases import compile_cases

found = {
    f"{case.kernel.fn.__name__}: {parameter.name}"
    for case in compile_cases()
    for parameter in case.kernel.params
    if case.scalars.get(parameter.name) == "i32" and not parameter.do_not_specialize
}
print(json.dumps(sorted(found)))
"""


def test_no_integer_that_varies_with_the_batch_compiles_attention_again():
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", RUN_TIME_INTEGERS], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_planted_faults_are_found():
    compiled = {
        one.id.split(" @ ")[0]: one for one in compile_in_child(["tests.kernels.faulty_cases"])
    }
    faults = {name: find_faults(FAULTY[name], one) for name, one in compiled.items()}
    assert faults["sound"] == []
    assert "of its bytes 16 at a time" in faults["strides of any size"][-1]
    assert "bytes of shared memory and sm_90 has 232448" in faults["nine stages"][0]
    assert "spills registers" in faults["too few warps"][0]
    assert "no matrix instruction" in faults["no tensor cores"][-1]


def test_a_changed_register_count_shows_only_with_the_same_triton(monkeypatch):
    version, committed = table.read()
    one = next(iter(committed.values()))
    changed = type(one)(**{**one.to_json(), "registers": one.registers + 1})
    monkeypatch.setattr(triton, "__version__", version)
    assert table.find_changes([one]) == []
    assert table.find_changes([changed]) == [
        f"{one.id}: registers {one.registers} -> {one.registers + 1}"
    ]
    monkeypatch.setattr(triton, "__version__", "0.0")
    assert table.find_changes([changed]) == []


def test_a_kernel_that_does_not_compile_is_told_with_the_compilers_words(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(
        "import triton\nimport triton.language as tl\n"
        "from minillm_serve.kernels.compile_case import CompileCase\n"
        "@triton.jit\ndef kernel(x_ptr):\n    tl.store(x_ptr, tl.arange(0, 3))\n"
        "def compile_cases():\n"
        "    return [CompileCase('broken', kernel, 'sm_90', {'x_ptr': 'i32'}, {}, {})]\n"
    )
    with pytest.raises(CompileError, match="power of 2"):
        compile_in_child([str(file)])


SASS = """
.L_x_1:
  /*0010*/   LDGSTS.E.BYPASS.128 [R2], desc[UR18][R20.64], P5 ;
  /*0020*/   @P0 LDG.E R4, desc[UR18][R6.64] ;
  /*0030*/   @P1 LDG.E.U16.CONSTANT R5, desc[UR18][R6.64] ;
  /*0040*/   @P1 BRA `(.L_x_1) ;
.L_x_2:
  /*0050*/   LDG.E.64 R8, desc[UR18][R6.64] ;
  /*0060*/   @P2 EXIT ;
  /*0070*/   EXIT ;
.L_x_3:
  /*0080*/   BRA `(.L_x_2) ;
"""


def test_a_loop_is_told_from_what_follows_and_from_code_out_of_line():
    listing = parse(SASS, is_amd=False)
    assert listing.loops == [(0, 3)]
    assert [load_bytes(one.name) for one in listing.instructions[:5]] == [16, 4, 2, 0, 8]
    assert wide_share(listing, index_loads=0) == pytest.approx(16 / 22)
    assert wide_share(listing, index_loads=1) == pytest.approx(16 / 18)


AMD = """
.LBB0_1:
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
\tbuffer_load_ushort v5, v6, s[0:3], 0
\ts_cbranch_scc1 .LBB0_1
\tglobal_load_dword v1, v2, s[0:1]
"""


def test_amd_loads_are_measured_too():
    assert wide_share(parse(AMD, is_amd=True), index_loads=0) == pytest.approx(16 / 18)
