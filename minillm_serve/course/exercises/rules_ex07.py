"""ex07's rule, sequence by sequence in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minillm_serve.course.exercises.exercise import Case

Vector = np.ndarray[Any, Any]


class Row(NamedTuple):
    """One sequence of a case.

    Attributes:
        p: [K+1, V] float64, q: [K, V] float64: of the model and of the drafter.
        drafts: K token ids.
        length: how many of them count.
        draws: [K+1, 2]: tests, picks.
    """

    p: Vector
    q: Vector
    drafts: list[int]
    length: int
    draws: Vector


#: How many drafts of a sequence are kept.
Count = Callable[[Row], int]
#: What the one more token is picked from, when so many drafts are kept; None: nothing is added.
Weights = Callable[[Row, int], Vector | None]
#: By which number it is picked.
Draw = Callable[[Row, int], float]
#: How many are kept, and all new tokens.
Outcome = tuple[int, list[int]]


def rows_of(case: Case, most: int | None = None) -> list[Row]:
    """The sequences of a case, or the first of them."""
    p, q, drafts, lengths, draws = (
        case[name][:most].numpy() for name in ("p", "q", "drafts", "lengths", "draws")
    )
    p, q = p.astype(float), q.astype(float)
    return [
        Row(p[s], q[s], drafts[s].tolist(), int(lengths[s]), draws[s]) for s in range(len(drafts))
    ]


# How many are kept.


def prefix(passes: Callable[[Row, int], bool]) -> Count:
    """Drafts are kept as long as they pass a test."""

    def count(row: Row) -> int:
        passed = (i for i in range(row.length) if not passes(row, i))
        return next(passed, row.length)

    return count


def passes(row: Row, i: int) -> bool:
    """The papers' test of draft i: the draw is below p / q. (Without dividing by 0.)"""
    d = row.drafts[i]
    return bool(row.draws[i, 0] * row.q[i, d] < row.p[i, d])


right_count = prefix(passes)


# What comes behind them.


def pick(weights: Vector, draw: float) -> int:
    """The first token at which the running sum of the weights exceeds the draw's share of it."""
    running = np.cumsum(weights)
    return min(int((running <= draw * running[-1]).sum()), len(weights) - 1)


def lacking(p: Vector, q: Vector) -> Vector:
    """What p has more than q, or p if that is nothing; not yet summing to 1."""
    rest = np.maximum(p - q, 0)
    return rest if rest.sum() > 0 else p


def right_weights(row: Row, n: int) -> Vector:
    """The papers' distribution of the token behind n kept drafts."""
    return lacking(row.p[n], row.q[n]) if n < row.length else row.p[n]


def right_draw(row: Row, n: int) -> float:
    """The number that this token is picked by."""
    return float(row.draws[n, 1])


def outcome(
    row: Row,
    *,
    count: Count = right_count,
    weights: Weights = right_weights,
    draw: Draw = right_draw,
) -> Outcome:
    """How many drafts of a sequence are kept, and its new tokens."""
    n = count(row)
    found = weights(row, n)
    return n, row.drafts[:n] + ([] if found is None else [pick(found, draw(row, n))])
