"""`show`: the package's own source, highlighted, in the notebook.

show(BlockPool)                              # a class
show(BlockPool, only=["allocate", "free"])   # some of its methods
show(BlockPool.free)                         # a method or function
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyterlab_pygments import JupyterStyle
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

_PACKAGE = Path(__file__).resolve().parents[1]


class Listing:
    """Source of an object, with its place; shows itself as the last line of a cell.

    Attributes:
        code: The source, dedented.
        place: `minillm_serve/core/block_pool.py:12`.
    """

    def __init__(self, code: str, place: str) -> None:
        self.code, self.place = code, place

    def __repr__(self) -> str:
        """Place and source as text."""
        return f"# {self.place}\n{self.code}"

    def _repr_html_(self) -> str:
        """Place and highlighted source; colours are Lab's own, light or dark."""
        formatter = HtmlFormatter(
            style=JupyterStyle, noclasses=True, nobackground=True, prestyles="line-height: 1.4"
        )
        body = highlight(self.code, PythonLexer(), formatter)
        return (
            '<div style="border-left: 3px solid #0072B2; padding-left: 12px">'
            f"<code>{self.place}</code>{body}</div>"
        )


def show(obj: Any, only: Sequence[str] | None = None) -> Listing:
    """Show the source of a class, function, method or kernel; use it as the last line of a cell.

    Args:
        obj: What to show. Compiled kernels (Triton's, Numba's) show the Python they came from.
        only: Names of methods; the rest of the class is left out.

    Raises:
        TypeError: `obj` has no Python source, or `only` was given for something not a class.
        ValueError: `only` names what the class does not define.
    """
    target = _python_of(obj)
    try:
        lines, start = inspect.getsourcelines(target)
    except (OSError, TypeError) as error:
        raise TypeError(
            f"{obj!r} has no Python source to show: pass a class, function or method"
        ) from error
    if only is not None:
        lines = _some_methods(target, lines, only)
    return Listing(textwrap.dedent("".join(lines)).rstrip(), f"{_place(target)}:{max(start, 1)}")


def _python_of(obj: Any) -> Any:
    """Unwrap decorators and compiled kernels down to what has source."""
    if inspect.isclass(obj) or inspect.ismodule(obj):
        return obj
    if isinstance(obj, property):
        obj = obj.fget
    for attribute in ("fn", "py_func"):  # Triton's JITFunction, Numba's dispatcher
        if not inspect.isfunction(obj) and callable(inner := getattr(obj, attribute, None)):
            obj = inner
    return inspect.unwrap(obj) if callable(obj) else obj


def _some_methods(target: Any, lines: list[str], only: Sequence[str]) -> list[str]:
    """The head of a class and the named methods, `...` for what is between them."""
    if not inspect.isclass(target):
        raise TypeError(f"only={list(only)} needs a class, and {target!r} is not one")
    defined = {name: _python_of(_bare(value)) for name, value in vars(target).items()}
    methods = {name: value for name, value in defined.items() if inspect.isfunction(value)}
    if unknown := [name for name in only if name not in methods]:
        raise ValueError(f"{target.__name__} does not define {unknown}: it has {sorted(methods)}")
    head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("class "))
    while not lines[head].rstrip().endswith(":"):  # a head may run over several lines
        head += 1
    chosen = lines[: head + 1]
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()) + 4)
    for name in only:
        chosen += [f"{indent}...\n\n", *inspect.getsourcelines(methods[name])[0], "\n"]
    return chosen


def _bare(value: Any) -> Any:
    """The function inside a staticmethod or classmethod."""
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _place(target: Any) -> str:
    """The file, relative to the folder that holds the package: never a path of this machine."""
    module: str = getattr(target, "__module__", None) or getattr(target, "__name__", None) or ""
    if module == "__main__":
        return "this notebook"
    file = Path(inspect.getsourcefile(target) or "").resolve()
    if file.is_relative_to(_PACKAGE.parent):
        return file.relative_to(_PACKAGE.parent).as_posix()
    return module.replace(".", "/") + ".py"
