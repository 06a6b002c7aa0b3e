"""What ex07's three small functions should give, and what a wrong result gives away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minillm_serve.course.exercises.compare import first_difference
from minillm_serve.course.exercises.exercise import Case, CheckFailed, Opaque
from minillm_serve.course.exercises.rules_ex07 import Vector, lacking, pick

TOLERANCE = 1e-4
#: As many as float32 has.
DECIMALS = 6
Mistake = Callable[[Vector, Vector], Vector]


def _rows(case: Case) -> tuple[Vector, Vector]:
    return case["p"].numpy().astype(float), case["q"].numpy().astype(float)


def overlap(case: Case) -> Vector:
    """What p and q have in common, [S]."""
    return np.asarray(np.minimum(*_rows(case)).sum(1).round(DECIMALS))


def residual(case: Case) -> Vector:
    """What p has more than q, made to sum to 1; p where that is nothing."""
    rest = np.stack([lacking(*rows) for rows in zip(*_rows(case), strict=True)])
    return np.asarray((rest / rest.sum(1, keepdims=True)).round(DECIMALS))


_OVERLAPS: dict[str, Mistake] = {
    "that is how likely p and q are to draw the same token, if both draw. But the draft is here "
    "already, and p need not draw it as well: it is kept with min(1, p / q)": (
        lambda p, q: (p * q).sum(1)
    ),
    "that adds up min(1, p / q) over the tokens, as often as they may be drafted or not: token x "
    "is drafted with probability q(x), so multiply by it first": (
        lambda p, q: np.minimum(1, p / q).sum(1)
    ),
    "that is the mean of min(1, p / q) over the tokens; but likely drafts are made more often: "
    "weigh each by q(x)": lambda p, q: np.minimum(1, p / q).mean(1),
    "sum |p - q| counts every difference twice: what q has more, and what p lacks": (
        lambda p, q: 1 - np.abs(p - q).sum(1)
    ),
    "that is how often a draft is refused, not how often it is kept": (
        lambda p, q: 1 - np.minimum(p, q).sum(1)
    ),
    "that is how often the likeliest draft is kept, and others are drafted, too": (
        lambda p, q: np.minimum(1, p / q)[np.arange(len(q)), q.argmax(1)]
    ),
    "that is the sum of the larger of both; what they have in common is the smaller": (
        lambda p, q: np.maximum(p, q).sum(1)
    ),
    "that adds up all rows: p and q are [S, V], and each row is a pair of distributions": (
        lambda p, q: np.minimum(p, q).sum(1).sum(keepdims=True)
    ),
}

_RESIDUALS: dict[str, Mistake] = {
    "this does not sum to 1. The positive part of p - q does only if it is divided by its own "
    "sum": lambda p, q: np.maximum(p - q, 0),
    "negative parts are still there: where q has more than p, nothing is lacking": (
        lambda p, q: p - q
    ),
    "a difference counts whatever its sign here; where q has more than p, nothing is lacking": (
        lambda p, q: np.abs(p - q) / np.abs(p - q).sum(1, keepdims=True)
    ),
    "that is what q has more than p, and p is what should come out": (
        lambda p, q: np.maximum(q - p, 0) / np.maximum(q - p, 0).sum(1, keepdims=True)
    ),
    "that is p. What p and q have in common has come out already, by the drafts that were kept": (
        lambda p, q: p
    ),
    "a softmax gives every token some weight, also those of which nothing is lacking": (
        lambda p, q: np.exp(p - q) / np.exp(p - q).sum(1, keepdims=True)
    ),
    "all rows together sum to 1 here; each should by itself: sum over the last dimension, and keep "
    "it": lambda p, q: np.maximum(p - q, 0) / np.maximum(p - q, 0).sum(),
}


def _explained(case: Case, got: Any, mistakes: dict[str, Mistake]) -> str | None:
    if isinstance(got, np.ndarray) and got.dtype.kind == "f" and got.ndim:
        with np.errstate(all="ignore"):
            for said, mistake in mistakes.items():
                wrong = mistake(*_rows(case))
                if np.shape(wrong) == got.shape and np.allclose(
                    wrong, got, rtol=0, atol=1e-5, equal_nan=True
                ):
                    return said
    return None


def overlap_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """What was computed instead."""
    if isinstance(got, np.ndarray | float) and not np.isfinite(got).all():
        return (
            "it is no number: a probability may be 0, and 0 / 0 is none. What p and q have in "
            "common needs no division"
        )
    return _explained(case, got, _OVERLAPS)


def residual_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """The same of residuals."""
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        return None
    p, q = _rows(case)
    same = (p == q).all(1)
    if np.isnan(got).any():
        row = int(np.isnan(got).any(1).argmax())
        if same[row]:
            return (
                f"row {row} is NaN: p and q are the same, nothing is lacking, and that was divided "
                "by its sum, 0. Such a row is p itself"
            )
        return f"row {row} is NaN"
    if same.any() and not got[same].any():
        return (
            "where p and q are the same, nothing is lacking, and nothing could be picked from "
            "that: return p there"
        )
    if said := _explained(case, got, _RESIDUALS):
        return said
    short = got.sum(1) < 1 - TOLERANCE
    if short.any() and np.maximum(p - q, 0)[short].sum(1).max() < 1e-3:
        return (
            f"row {int(short.argmax())} sums to {got[short][0].sum():.3g}. Little is lacking "
            "there, and the small number that was added to the sum, or put in its place, is large "
            "beside that. Ask whether the sum is 0 instead"
        )
    return None


def picked(case: Case) -> list[int]:
    """The token that each draw picks."""
    rows = zip(case["weights"].numpy().astype(float), case["draws"].tolist(), strict=True)
    return [pick(weights, draw) for weights, draw in rows]


def judge_picks(case: Case, got: Any) -> None:
    """Compares tokens.

    Raises:
        CheckFailed: with the first that is another, and what a mistake would give.
    """
    wanted, weights = picked(case), case["weights"].numpy()
    got = whole_numbers(got, len(wanted), "tokens")
    for row, (right, token) in enumerate(zip(wanted, got, strict=True)):
        if token == right:
            continue
        draw = case["draws"][row].item()
        raise CheckFailed(
            f"row {row}, draw {shown_draw(draw)}: {_mispicked(weights, got, row, draw)}",
            index=f"[{row}]",
            expected=right,
            got=token,
        )


def shown_draw(draw: float) -> str:
    """A draw as learners read it; one that would be rounded to 1 is not."""
    return f"{draw:.3f}" if draw < 0.9995 else "1 - 2**-53" if draw == 1 - 2**-53 else f"{draw:.6f}"


def _mispicked(weights: Vector, got: list[int], row: int, draw: float) -> str:
    token, vocab = got[row], weights.shape[1]
    if not 0 <= token < vocab:
        return (
            f"there is no token {token}. In float32 the sum of many weights ends a little below "
            "1, and a draw may lie behind it: sum in float64, and compare with the draw's share of "
            "the total"
        )
    if weights[row, token] == 0 and draw == 0:
        return (
            f"token {token} has the weight 0. The running sum has to exceed the draw: where it is "
            "only as large, 0 and 0, nothing has come yet (see `right` of torch.searchsorted)"
        )
    if weights[row, token] == 0:
        return (
            f"token {token} has the weight 0, and must never come. In float32 a draw just below 1 "
            "becomes 1, and the sum of many weights is not quite 1: sum in float64, and compare "
            "with the draw's share of the total"
        )
    if got == weights.argmax(1).tolist():
        return "it always takes the likeliest token, whatever the draw"
    first = [pick(weights[0].astype(float), float(u)) for u in [draw]]
    if row and token == first[0]:
        return "it goes by the weights of row 0: each row has its own"
    if token == _descending(weights[row], draw):
        return "it goes through the tokens by their weights. Go by their ids, from 0"
    return "the running sum of the weights exceeds the draw at another token first"


def _descending(weights: Vector, draw: float) -> int:
    order = np.argsort(-weights, kind="stable")
    return int(order[pick(weights[order].astype(float), draw)])


def whole_numbers(got: Any, count: int, what: str) -> list[int]:
    """Evidence as a list of so many ints.

    Raises:
        CheckFailed: it is none.
    """
    if got is None:
        raise CheckFailed("it returned nothing: is there a `return`?")
    if isinstance(got, list):
        raise CheckFailed(f"it returned a list, and should return a tensor of {what}", got=got)
    if not isinstance(got, np.ndarray):
        kind = got.type if isinstance(got, Opaque) else type(got).__name__
        raise CheckFailed(f"it returned a {kind}, and should return a tensor of {what}", got=got)
    if got.dtype != np.int64:
        raise CheckFailed(f"the dtype of the {what} is wrong", expected="int64", got=str(got.dtype))
    if found := first_difference(np.zeros(count), np.zeros(got.shape)):
        raise CheckFailed(
            f"the shape of the {what} is wrong", expected=found.expected, got=found.got
        )
    return [int(one) for one in got]
