"""Where two pieces of evidence first differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Difference:
    """The first place where evidence is not as expected.

    Attributes:
        index: such as ``"[3]['blocks']"``; "" if the values themselves differ.
        expected: the right value there, or a description such as ``"5 items"``.
        got: the learner's.
    """

    index: str
    expected: Any
    got: Any


def first_difference(
    expected: Any, got: Any, *, rtol: float = 0.0, atol: float = 0.0
) -> Difference | None:
    """Walks both in order; None if nothing differs.

    Args:
        expected: plain data: numbers, texts, lists, dicts, arrays.
        got: evidence.
        rtol: allowed relative error of numbers that are not both whole.
        atol: allowed absolute error of the same.
    """
    return _walk(expected, got, "", (rtol, atol))


def _walk(expected: Any, got: Any, at: str, tolerance: tuple[float, float]) -> Difference | None:
    if hasattr(expected, "detach"):  # a torch tensor
        expected = expected.detach().cpu().numpy()
    if isinstance(expected, np.ndarray):
        return _arrays(expected, got, at, tolerance)
    if isinstance(expected, list | tuple):
        return _lists(expected, got, at, tolerance)
    if isinstance(expected, dict):
        return _dicts(expected, got, at, tolerance)
    return None if _same(expected, got, tolerance) else Difference(at, expected, got)


def _same(expected: Any, got: Any, tolerance: tuple[float, float]) -> bool:
    """Two single values. 13.0 is not 13 where a count is expected, and True is not 1."""
    if isinstance(got, np.ndarray) and got.ndim == 0:
        got = got.item()
    number = (int, float, np.integer, np.floating)
    if isinstance(expected, number) and isinstance(got, number):
        if isinstance(expected, bool) or isinstance(got, bool):
            return type(expected) is type(got) and expected == got
        if isinstance(expected, int | np.integer):
            return not isinstance(got, float | np.floating) and bool(expected == got)
        rtol, atol = tolerance
        return math.isclose(expected, got, rel_tol=rtol, abs_tol=atol)
    return type(expected) is type(got) and bool(expected == got)


def _lists(expected: Any, got: Any, at: str, tolerance: tuple[float, float]) -> Difference | None:
    if isinstance(got, np.ndarray) and got.ndim:
        got = got.tolist()
    if not isinstance(got, list | tuple):
        return Difference(at, expected, got)
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        if found := _walk(one, other, f"{at}[{index}]", tolerance):
            return found
    if len(expected) != len(got):
        return Difference(at, f"{len(expected)} items", f"{len(got)} items")
    return None


def _dicts(expected: Any, got: Any, at: str, tolerance: tuple[float, float]) -> Difference | None:
    if not isinstance(got, dict):
        return Difference(at, expected, got)
    for key, one in expected.items():
        if key not in got:
            return Difference(f"{at}[{key!r}]", one, "nothing under this key")
        if found := _walk(one, got[key], f"{at}[{key!r}]", tolerance):
            return found
    if extra := [key for key in got if key not in expected]:
        return Difference(f"{at}[{extra[0]!r}]", "no such key", got[extra[0]])
    return None


def _arrays(expected: Any, got: Any, at: str, tolerance: tuple[float, float]) -> Difference | None:
    if isinstance(got, list | tuple | int | float) and not isinstance(got, bool):
        try:
            got = np.asarray(got)
        except ValueError:  # rows of unlike lengths
            return Difference(at, f"an array {expected.shape}", got)
    if not isinstance(got, np.ndarray) or got.dtype.kind not in "biuf":
        return Difference(at, f"an array {list(expected.shape)}", got)
    if got.shape != expected.shape:
        return Difference(at, f"shape {list(expected.shape)}", f"shape {list(got.shape)}")
    rtol, atol = tolerance
    right = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    if right.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~right)[0])
    where = at + "".join(f"[{i}]" for i in place)
    return Difference(where, expected[place].item(), got[place].item())
