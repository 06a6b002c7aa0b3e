"""The tree is as CONTRIBUTING.md says, and imports point downward."""

import json
import re
import subprocess
import sys

from tests.house.tree import ROOT, project_files, read_text

TOP_LEVEL = {
    ".ci",
    ".gitattributes",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "benchmarks",
    "constraints.txt",
    "exercises",
    "kernels",
    "minillm_serve",
    "notebooks",
    "pyproject.toml",
    "solutions",
    "tests",
}

# A folder of somebody's machine (users called `user` and `ada` are examples). Written so that it
# does not find itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.:<$}])/(?:root|work)/\w"
    r"|(?<![\w.:<$}])/(?:home|Users)/(?!user\b|ada\b)\w+/\w"
    r"|[A-Z]:\\Users\\(?!user\b|ada\b)\w"
)


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh Python holds after a statement."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def third_party(modules: set[str]) -> set[str]:
    """Those that neither Python nor this project brings."""
    before = modules_after("pass")  # what a .pth file of the environment loads is not our doing
    return modules - before - set(sys.stdlib_module_names) - {"minillm_serve"}


def test_the_root_holds_what_the_design_names_and_nothing_else() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in project_files()}
    assert found - TOP_LEVEL == set()
    assert {"minillm_serve", "kernels", "tests", ".ci", "Makefile", "README.md"} <= found


def test_kernels_is_no_regular_package() -> None:
    assert list((ROOT / "kernels").rglob("__init__.py")) == []


def test_the_core_never_imports_torch() -> None:
    modules = modules_after("import minillm_serve.core")
    assert "minillm_serve" in modules
    assert third_party(modules) == set()


def test_importing_the_package_needs_nothing_of_the_extras() -> None:
    modules = modules_after("import minillm_serve; minillm_serve.LLM; minillm_serve.SamplingParams")
    extras = {"fastapi", "uvicorn", "httpx", "starlette", "jupyterlab", "IPython", "ipywidgets"}
    extras |= {"anywidget", "matplotlib", "nbformat", "ray", "pytest", "accelerate", "gguf"}
    assert "torch" in modules
    assert modules & extras == set()


def test_the_doctor_and_the_command_line_start_with_the_standard_library_alone() -> None:
    modules = modules_after("import minillm_serve.cli, minillm_serve.doctor")
    assert third_party(modules) == set()


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    found = []
    for path in project_files():
        for number, line in enumerate((read_text(path) or "").splitlines(), 1):
            if MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert found == []
