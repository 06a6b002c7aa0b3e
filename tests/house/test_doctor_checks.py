"""Each check's verdict.

Conditions of other machines (a GPU, an old Python) are stood in for by data; what can be made here
is made here.
"""

from pathlib import Path

import pytest

from minillm_serve.doctor import Status
from minillm_serve.doctor.engine import check_package, check_python, check_torch, check_triton
from minillm_serve.doctor.extras import check_browser, check_course, check_model
from minillm_serve.doctor.machine import GIB, check_disk, check_gpu, check_memory, memory_bytes
from minillm_serve.doctor.probe import Probe

H200 = {"name": "H200", "memory": 139 * GIB, "capability": "9.0", "error": None}
TORCH = {"version": "2.13.0", "threads": 2, "cuda": "13.0", "hip": None, "gpus": []}


def with_gpus(*gpus: dict, **changes: object) -> Probe:
    return Probe({**TORCH, "gpus": list(gpus), **changes})


def test_this_python_is_new_enough() -> None:
    assert check_python().status is Status.OK


def test_an_old_python_is_refused_by_version() -> None:
    check = check_python((3, 10, 12))
    assert check.status is Status.FAIL
    assert check.found == "3.10.12; 3.11 or newer is needed"


def test_torchs_build_is_told_apart() -> None:
    assert "CUDA 13.0 build" in check_torch(with_gpus()).found
    assert "CPU build" in check_torch(with_gpus(cuda=None)).found
    assert "ROCm 7.0 build" in check_torch(with_gpus(cuda=None, hip="7.0")).found


def test_a_missing_package_and_a_broken_one_have_different_remedies() -> None:
    missing = check_package("numpy", Probe(error="ModuleNotFoundError", missing="numpy"))
    broken = check_package("numpy", Probe(error="ImportError: wrong ELF class"))
    assert missing.status is broken.status is Status.FAIL
    assert missing.remedy == "pip install -c constraints.txt numpy"
    assert broken.remedy.startswith("pip install -c constraints.txt --force-reinstall")
    assert broken.found == "ImportError: wrong ELF class"


def test_a_kernels_package_in_transformers_way_is_named() -> None:
    error = "ImportError: cannot import name 'Mode' from 'kernels'"
    assert "hides Hugging Face's" in check_package("transformers", Probe(error=error)).remedy


def test_a_dead_canary_fails_on_a_gpu_and_warns_on_a_cpu() -> None:
    dead = Probe(error="CanaryError: returned only zeros")
    assert check_triton(dead, has_gpu=True).status is Status.FAIL
    assert check_triton(dead, has_gpu=False).status is Status.WARN


def test_triton_is_not_missed_where_it_does_not_exist() -> None:
    absent = Probe(error="ModuleNotFoundError", missing="triton")
    assert check_triton(absent, has_gpu=False, system="Darwin").status is Status.OK
    check = check_triton(absent, has_gpu=False, system="Linux")
    assert check.status is Status.WARN
    assert "pip install" in check.remedy


def test_triton_is_not_blamed_for_a_missing_torch() -> None:
    check = check_triton(Probe(error="ModuleNotFoundError", missing="torch"), has_gpu=False)
    assert check.found == "not checked: torch is not installed"


def test_an_interpreter_that_keeps_a_gpu_idle_is_pointed_out() -> None:
    canary = Probe({"triton_version": "3.7.1", "device": "cuda", "mode": "interpreted"})
    check = check_triton(canary, has_gpu=True)
    assert check.status is Status.WARN
    assert "unset TRITON_INTERPRET" in check.remedy


def test_a_gpu_is_described() -> None:
    check = check_gpu(with_gpus(H200, H200), "580.1")
    assert check.status is Status.OK
    assert check.found == "H200, 139 GiB, capability 9.0, driver 580.1 (and 1 more)"


def test_a_gpu_that_computes_nothing_fails() -> None:
    broken = {**H200, "error": "CUDA error: no kernel image is available"}
    check = check_gpu(with_gpus(broken), "580.1")
    assert check.status is Status.FAIL
    assert "no kernel image" in check.found


def test_a_gpu_without_bfloat16_is_told_which_dtype_to_take() -> None:
    check = check_gpu(with_gpus({**H200, "name": "T4", "capability": "7.5"}), "580.1")
    assert check.status is Status.WARN
    assert 'dtype="float16"' in check.remedy


def test_an_amd_gpus_capability_is_not_read_as_nvidias() -> None:
    amd = {**H200, "name": "MI300X", "capability": "9.4"}
    assert check_gpu(with_gpus(amd, hip="7.0", cuda=None), None).status is Status.OK


def test_a_gpu_that_torch_cannot_use_says_which_of_the_two_is_at_fault() -> None:
    cpu_build = check_gpu(with_gpus(cuda=None), "580.1")
    old_driver = check_gpu(with_gpus(), "470.1")
    assert cpu_build.status is old_driver.status is Status.WARN
    assert "torch is a CPU build" in cpu_build.found
    assert "make lab TORCH=" in old_driver.remedy


def test_no_gpu_is_no_fault() -> None:
    assert check_gpu(with_gpus(), None).status is Status.OK


def test_memory_is_measured_and_judged() -> None:
    total = memory_bytes()
    assert check_memory(total, needed=1).status is Status.OK
    assert check_memory(total, needed=1 << 60).status is Status.WARN
    assert check_memory(None).status is Status.OK


def test_a_cache_folder_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    check = check_disk(tmp_path / "a" / "b", needed=1)
    assert check.status is Status.OK
    assert not (tmp_path / "a").exists()


def test_too_little_space_warns_and_names_the_variable(tmp_path: Path) -> None:
    check = check_disk(tmp_path, needed=1 << 60)
    assert check.status is Status.WARN
    assert "MINILLM_SERVE_CACHE" in check.remedy


def test_a_file_where_the_cache_should_be_is_found(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    check = check_disk(tmp_path / "cache" / "models")
    assert check.status is Status.FAIL
    assert "is a file where a folder is needed" in check.found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_folder_that_cannot_be_written_to_fails_unless_the_model_is_there() -> None:
    check = check_disk(Path("/proc/models"))
    assert check.status is Status.FAIL
    assert "cannot be written to" in check.found
    assert check_disk(Path("/proc/models"), have_model=True).status is Status.WARN


def test_a_model_that_is_missing_or_damaged_is_fetched_by_the_same_command() -> None:
    where = {"root": "/cache", "path": "/cache/m"}
    whole = check_model(Probe({**where, "present": True, "problem": None}))
    absent = check_model(Probe({**where, "present": False, "problem": "it is not there"}))
    damaged = check_model(Probe({**where, "present": True, "problem": "a.json is missing"}))
    assert whole.status is Status.OK
    assert absent.status is damaged.status is Status.WARN
    assert "a.json is missing" in damaged.found
    assert all("models fetch smollm2-135m" in check.remedy for check in (absent, damaged))


def test_a_machine_without_the_course_still_has_an_engine() -> None:
    check = check_course(Probe(error="ModuleNotFoundError", missing="ipywidgets"))
    assert check.status is Status.WARN
    assert check.found == "ipywidgets is not installed"
    assert "minillm-serve[course]" in check.remedy
    assert check_browser(Probe({"path": None})).status is Status.WARN
    assert check_browser(Probe({"path": "/usr/bin/chromium"})).status is Status.OK
