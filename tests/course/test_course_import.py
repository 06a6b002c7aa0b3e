"""`import minillm_serve.course` is light, and its names come when they are asked for."""

import subprocess
import sys

import pytest

import minillm_serve.course as course

HEAVY = ("matplotlib", "ipywidgets", "anywidget", "IPython", "nbformat", "jupyterlab", "torch")


def run(code: str) -> str:
    """Run in a fresh interpreter; return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["", ".lab", ".browser"])
def test_importing_it_loads_nothing_of_jupyter(module: str) -> None:
    code = (
        f"import sys, minillm_serve.course{module}; print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


@pytest.mark.parametrize("name", course.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(course, name) is not None
    assert name in dir(course)


def test_show_is_the_function_whatever_was_imported_before() -> None:
    code = (
        "import minillm_serve.course.listing\n"
        "from minillm_serve.course import show, plots\n"
        "print(callable(show), plots.__name__)"
    )
    assert run(code).split() == ["True", "minillm_serve.course.plots"]


def test_a_missing_extra_is_named_with_the_command_that_brings_it() -> None:
    code = (
        "import sys\n"
        "sys.modules['anywidget'] = None\n"
        "try:\n"
        "    from minillm_serve.course import Experiment\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    said = run(code)
    assert "'anywidget', which is not installed: pip install" in said


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Slider'"):
        course.Slider  # noqa: B018 - asking is the test
