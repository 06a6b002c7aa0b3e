"""The doctor in front of broken installations, each made by a package planted on the path."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minillm_serve.doctor.probe import Probe, run_child, run_probe

Plant = Callable[..., dict[str, str]]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Put modules of these names and bodies first on the path; return the environment for it."""

    def put(**bodies: str) -> dict[str, str]:
        for name, body in bodies.items():
            (tmp_path / f"{name}.py").write_text(body)
        return {**os.environ, "PYTHONPATH": str(tmp_path), "TRITON_INTERPRET": "1"}

    return put


def absent(name: str) -> str:
    return f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')"


def test_a_sound_package_reports_its_version() -> None:
    assert run_probe("numpy").data["version"].count(".") >= 1


def test_a_triton_that_breaks_at_import_is_a_finding(plant: Plant) -> None:
    probe = run_probe("canary", env=plant(triton="raise OSError('libcuda.so.1: cannot open')"))
    assert probe == Probe(error="OSError: libcuda.so.1: cannot open")


def test_a_triton_that_is_not_there_is_named_as_missing(plant: Plant) -> None:
    assert run_probe("canary", env=plant(triton=absent("triton"))).missing == "triton"


def test_an_import_that_ends_the_process_is_a_finding(plant: Plant) -> None:
    probe = run_probe("numpy", env=plant(numpy="import os; os.abort()"))
    assert probe.error is not None
    assert "SIGABRT" in probe.error or "exit code" in probe.error


def test_an_import_that_leaves_by_the_back_door_is_a_finding(plant: Plant) -> None:
    probe = run_probe("numpy", env=plant(numpy="import sys; sys.exit('licence expired')"))
    assert probe.error == "exit code 1: licence expired"


def test_an_import_that_hangs_is_given_up(plant: Plant) -> None:
    env = plant(numpy="import threading; threading.Event().wait()")
    assert run_probe("numpy", env=env, timeout=2).error == "gave no answer in 2 s"


def test_chatter_of_a_package_does_not_hide_the_answer(plant: Plant) -> None:
    env = plant(numpy="print('welcome'); print('{not json'); __version__ = '9.9'")
    assert run_probe("numpy", env=env).data == {"version": "9.9"}


def test_a_missing_gguf_reader_is_named(plant: Plant) -> None:
    env = plant(gguf=absent("gguf"))
    assert run_probe("gguf", env=env).missing == "gguf"


def test_a_probe_of_an_empty_cache_finds_no_model(plant: Plant, tmp_path: Path) -> None:
    env = {**plant(), "MINILLM_SERVE_CACHE": str(tmp_path / "cache")}
    data = run_probe("model", env=env).data
    assert data["present"] is False
    assert data["root"] == str(tmp_path / "cache")


def test_a_probe_of_a_half_written_cache_finds_the_damage(plant: Plant, tmp_path: Path) -> None:
    (tmp_path / "cache" / "smollm2-135m").mkdir(parents=True)
    env = {**plant(), "MINILLM_SERVE_CACHE": str(tmp_path / "cache")}
    data = run_probe("model", env=env).data
    assert data["present"] is True
    assert "missing or damaged" in data["problem"]


def test_a_file_in_the_current_folder_is_not_taken_for_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    assert run_probe("numpy").error is None


def test_a_child_that_says_nothing_is_a_finding() -> None:
    assert run_child(["-c", "pass"]).error == "exit code 0: no output"


def run_doctor(env: dict[str, str]) -> tuple[int, dict]:
    command = [sys.executable, "-P", "-m", "minillm_serve.cli", "doctor", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return done.returncode, {check["name"]: check for check in report["checks"]}


def test_the_doctor_passes_a_machine_without_any_extra(plant: Plant) -> None:
    env = plant(
        ipywidgets=absent("ipywidgets"),
        matplotlib=absent("matplotlib"),
        fastapi=absent("fastapi"),
        triton=absent("triton"),
    )
    code, checks = run_doctor(env)
    assert code == 0
    assert checks["torch"]["status"] == "ok"
    assert checks["triton"]["found"] == "not installed"
    assert checks["jupyter"]["status"] == "warn"


def test_the_doctor_reports_on_all_the_rest_when_torch_ends_its_process(plant: Plant) -> None:
    code, checks = run_doctor(plant(torch="import os; os.abort()"))
    assert code == 1
    assert checks["torch"]["status"] == "fail"
    assert checks["python"]["status"] == "ok"
    assert checks["numpy"]["status"] == "ok"
    assert checks["disk"]["found"]
