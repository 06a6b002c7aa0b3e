"""ex07's batches: sequences with drafts, of which each mistake makes something else."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from minillm_serve.course.exercises.cases_ex07 import MARGIN, drawn_from, spread
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.rules_ex07 import Row, right_weights, rows_of
from minillm_serve.runtime.spec.accept import PADDING

TRIES = 1000

#: [K, V].
Rows = Sequence[Sequence[float]]
#: What becomes of a sequence by some rule.
Rule = Callable[[Row], object]
Make = Callable[[random.Random], Case]


def batch(
    p: Sequence[Rows],
    q: Sequence[Rows],
    drafts: Sequence[Sequence[int]],
    draws: Sequence[Sequence[tuple[float, float]]],
    *,
    lengths: Sequence[int] | None = None,
    spoil: bool = False,
) -> Case:
    """A case, of lists.

    Args:
        p: S times K + 1 rows.
        q: S times K rows.
        drafts: S times K.
        draws: S times K + 1 pairs.
        lengths: of each sequence; K by default.
        spoil: what lies beyond them is NaN, or no token.
    """
    size, width, vocab = len(p), len(p[0]) - 1, len(p[0][0])
    case: Case = {
        "p": torch.tensor(p, dtype=torch.float32),
        "q": torch.tensor(q, dtype=torch.float32).reshape(size, width, vocab),
        "drafts": torch.tensor(drafts, dtype=torch.int64).reshape(size, width),
        "lengths": torch.tensor(lengths or [width] * size, dtype=torch.int64),
        "draws": torch.tensor(draws, dtype=torch.float64),
    }
    if spoil:
        for s, length in enumerate(case["lengths"].tolist()):
            case["p"][s, length + 1 :] = math.nan
            case["q"][s, length:] = math.nan
            case["drafts"][s, length:] = PADDING
    return case


def described(case: Case) -> str:
    """A case in one line."""
    size, rows, vocab = case["p"].shape
    lengths = case["lengths"].tolist()
    some = str(lengths) if size <= 8 else f"{lengths[:8]} and so on"
    each = f"{lengths[0]} each" if len(set(lengths)) == 1 else some
    return f"S={size}, K={rows - 1}, V={vocab}; drafts: {each}"


def drafted(
    rng: random.Random, lengths: Sequence[int], width: int, vocab: int = 5, *, spoil: bool = False
) -> Case:
    """Sequences with drafts that are drawn from their q.

    What is beyond the drafts looks like more of them, or is spoilt.
    """
    p = [[spread(rng, vocab) for _ in range(width + 1)] for _ in lengths]
    q = [[spread(rng, vocab) for _ in range(width)] for _ in lengths]
    drafts = [[drawn_from(rng, row) for row in rows] for rows in q]
    draws = [[(rng.random(), rng.random()) for _ in range(width + 1)] for _ in lengths]
    return batch(p, q, drafts, draws, lengths=list(lengths), spoil=spoil)


def is_clear(case: Case) -> bool:
    """Whether every draw is further than rounding from where something else would come out."""
    for row in rows_of(case):
        tests = [row.draws[i, 0] * row.q[i, d] - row.p[i, d] for i, d in _counted(row)]
        if any(abs(apart) < MARGIN for apart in tests):
            return False
        for n in range(row.length + 1):
            weights = right_weights(row, n)
            borders = np.cumsum(weights) / weights.sum()
            if np.abs(row.draws[n, 1] - borders).min() < MARGIN:
                return False
    return True


def _counted(row: Row) -> Iterable[tuple[int, int]]:
    return enumerate(row.drafts[: row.length])


def _tells_apart(rows: Sequence[Row], rules: Iterable[Rule]) -> bool:
    seen = list[list[object]]()
    for rule in rules:
        outcomes = [rule(row) for row in rows]
        if outcomes in seen:
            return False
        seen.append(outcomes)
    return True


def telling(rng: random.Random, make: Make, right: Rule, wrong: Sequence[Rule] = ()) -> Case:
    """Draws cases until one is clear, and every mistake makes something of its own of it.

    Raises:
        ValueError: there was none: `make` must leave more to chance.
    """
    for _ in range(TRIES):
        case = make(rng)
        if is_clear(case) and _tells_apart(rows_of(case), (right, *wrong)):
            return case
    raise ValueError(f"{make.__name__} has made no clear case in {TRIES} tries")
