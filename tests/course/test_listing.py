"""`show`: the package's own source, and where it stands."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from minillm_serve.course import show
from minillm_serve.course.experiment import Experiment
from minillm_serve.course.formula import Formula
from minillm_serve.course.plots import human_bytes


def test_a_function_is_shown_with_its_place_in_the_package() -> None:
    listing = show(human_bytes)
    place, code = repr(listing).split("\n", 1)
    assert place.startswith("# minillm_serve/course/plots.py:")
    assert code.startswith("def human_bytes(count: float")
    assert code.endswith('return f"{text} {_UNITS[unit]}"')


def test_a_method_is_shown_at_the_left_margin() -> None:
    assert show(Experiment.reset).code.startswith("def reset(self)")


def test_some_methods_of_a_class_are_shown_under_its_head() -> None:
    code = show(Experiment, only=["reset", "values"]).code
    assert code.startswith("class Experiment(widgets.VBox):\n    ...\n")
    assert code.index("def reset") < code.index("def values")
    assert "def redraw" not in code


def test_static_methods_count_as_methods() -> None:
    assert "@staticmethod\n    def _pattern" in show(Formula, only=["_pattern"]).code


def test_a_method_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"Formula does not define \['render'\].*'mathml'"):
        show(Formula, only=["render"])


def test_only_needs_a_class() -> None:
    with pytest.raises(TypeError, match="needs a class"):
        show(human_bytes, only=["x"])


def test_something_without_source_is_refused() -> None:
    with pytest.raises(TypeError, match="has no Python source"):
        show(len)


def test_decorators_and_compiled_kernels_show_the_python_they_came_from() -> None:
    @functools.lru_cache
    def cached() -> int:
        return 1

    class Kernel:
        """As Triton's JITFunction and Numba's dispatcher do it."""

        def __init__(self, fn: Callable[..., Any]) -> None:
            self.fn = fn

    assert "def cached" in show(cached).code
    assert "def human_bytes" in show(Kernel(human_bytes)).code


def test_the_html_is_the_same_each_time_and_takes_labs_own_colours() -> None:
    page = show(human_bytes)._repr_html_()
    assert page == show(human_bytes)._repr_html_()
    assert "var(--jp-mirror-editor-keyword-color)" in page
    assert "<style" not in page
