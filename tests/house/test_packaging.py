"""What a wheel holds, and that what is imported is declared."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.house.tree import ROOT, project_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DISTRIBUTION_OF = {"PIL": "pillow", "jupyter_client": "jupyter-client"}
DISTRIBUTION_OF["opentelemetry"] = "opentelemetry-sdk"  # one of several that share the name


def names(requirements: list[str]) -> set[str]:
    return {Requirement(line).name.lower().replace("_", "-") for line in requirements}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_installs_one_package_and_no_top_level_kernels(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in files if ".dist-info/" not in name}
    assert tops == {"minillm_serve"}
    assert "minillm_serve/kernels/canary.py" in files
    assert [name for name in files if "__pycache__" in name or name.endswith(".pyc")] == []


def test_a_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    ours = [path.relative_to(ROOT).as_posix() for path in project_files()]
    expected = {name for name in ours if name.startswith("minillm_serve/")}
    expected |= {f"minillm_serve/{name}" for name in ours if name.startswith("kernels/")}
    assert expected - packed == set()


def test_kernels_are_imported_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """And not from the checkout, nor from a stray `kernels` folder beside the package."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (site / "pyproject.toml").write_text("")  # some wheels do leave one there
    (site / "kernels").mkdir()
    (site / "kernels" / "stray.py").write_text("")
    code = (
        "import importlib.util, minillm_serve.kernels.canary as canary\n"
        "print(canary.__file__, importlib.util.find_spec('minillm_serve.kernels.stray'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(site / "minillm_serve" / "kernels" / "canary.py"), "None"]


@pytest.mark.parametrize(
    ("system", "wanted"), [("Linux", True), ("Darwin", False), ("Windows", False)]
)
def test_triton_is_asked_for_on_linux_only(system: str, wanted: bool) -> None:
    (triton,) = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "triton"]
    assert triton.marker is not None
    assert triton.marker.evaluate({"platform_system": system}) is wanted


@pytest.mark.parametrize(
    ("name", "version"),
    [("torch", "2.11.0"), ("triton", "3.6.0"), ("transformers", "5.17.0")],
)
def test_the_ranges_admit_the_oldest_versions_that_are_promised(name: str, version: str) -> None:
    (found,) = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == name]
    assert found.specifier.contains(version)


def test_every_dependency_is_pinned_and_the_pin_lies_in_its_range() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.!]+)", line).groups()
            pins[name.lower().replace("_", "-")] = version
    wanted = [*PROJECT["dependencies"]]
    for extra in ("course", "server", "tracing", "dev"):
        wanted += EXTRAS[extra]
    outside = [
        line
        for line in map(Requirement, wanted)
        if not line.specifier.contains(pins.get(line.name.lower().replace("_", "-"), "0"))
    ]
    assert outside == []


def test_no_pinned_version_needs_more_than_the_python_that_is_promised() -> None:
    """A pin that wants 3.11.5 leaves Debian's 3.11.2 without any way to install."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    too_new = []
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        name = line.split("==")[0]
        try:
            wanted = importlib.metadata.metadata(name)["Requires-Python"]
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue
        if wanted and importlib.metadata.version(name).split("+")[0] == line.split("==")[-1]:
            too_new += [] if SpecifierSet(wanted).contains(oldest) else [line]
    assert too_new == []


def test_what_a_module_imports_is_what_pyproject_declares() -> None:
    core = names(PROJECT["dependencies"])
    undeclared = set()
    for path in project_files():
        place = path.relative_to(ROOT).as_posix()
        if not place.endswith(".py") or not place.startswith(("minillm_serve/", "kernels/")):
            continue
        allowed = set(core)
        if place.startswith(("minillm_serve/course/", "minillm_serve/doctor/")):
            allowed |= names(EXTRAS["course"])
        if place.startswith("minillm_serve/server/"):
            allowed |= names(EXTRAS["server"] + EXTRAS["tracing"])
        if place.startswith("minillm_serve/runtime/structured/"):
            allowed.add("xgrammar")  # of the extra `server`; whoever lacks it is told
        if place.startswith("minillm_serve/cluster/"):
            allowed |= names(EXTRAS["cluster"])
        undeclared |= {(place, name) for name in third_party_imports(path) - allowed}
    assert undeclared == set()


def third_party_imports(path: Path) -> set[str]:
    """Distributions behind the absolute imports of a file, wherever in it they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    found -= set(sys.stdlib_module_names) | {"minillm_serve", "__future__"}
    return {DISTRIBUTION_OF.get(name, name).lower().replace("_", "-") for name in found}
