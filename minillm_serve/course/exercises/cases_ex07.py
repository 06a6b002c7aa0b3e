"""ex07's cases for its first three parts: pairs of distributions, and draws.

No draw lies so near a border that rounding could decide.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import torch

from minillm_serve.course.exercises.exercise import Case

#: The largest number below 1, and so the largest draw there is.
JUST_BELOW_1 = 1 - 2**-53
#: How far a draw is from each border, at least.
MARGIN = 1e-4
#: More numbers than that are not shown.
LONG = 8


def spread(rng: random.Random, vocab: int) -> list[float]:
    """A distribution in which no token is very rare."""
    weights = [0.05 + rng.random() ** 2 for _ in range(vocab)]
    return [weight / sum(weights) for weight in weights]


def one_hot(token: int, vocab: int) -> list[float]:
    """A distribution that is certain."""
    return [float(other == token) for other in range(vocab)]


def drawn_from(rng: random.Random, weights: Sequence[float]) -> int:
    """A token."""
    return rng.choices(range(len(weights)), weights)[0]


def _told(rows: torch.Tensor) -> str:
    told = [f"[{', '.join(f'{x:.4g}' for x in row[:LONG])}" for row in rows.tolist()]
    ends = ", ...]" if rows.shape[1] > LONG else "]"
    return told[0] + ends if len(told) == 1 else f"[{told[0]}{ends}, ...]"


# Two distributions.


def pair(*rows: tuple[Sequence[float], Sequence[float]]) -> Case:
    """Rows of p and q, [S, V]."""
    return {name: torch.tensor([row[i] for row in rows]) for i, name in enumerate("pq")}


def described_pair(case: Case) -> str:
    """A pair in one line; of several, the first."""
    size, vocab = case["p"].shape
    more = f" (S={size}, V={vocab})" if size > 1 else ""
    return f"p={_told(case['p'])}, q={_told(case['q'])}{more}"


def overlap_cases(rng: random.Random) -> Sequence[Case]:
    """Distributions that agree more or less."""
    size = rng.randrange(6, 12)
    return [
        pair(([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])),
        pair(*((spread(rng, size), spread(rng, size)) for _ in range(4))),
    ]


def certain_cases(rng: random.Random) -> Sequence[Case]:
    """One of them is certain, both are, or they are the same."""
    size = rng.randrange(4, 8)
    token, p = rng.randrange(size), spread(rng, size)
    sure, other = one_hot(token, size), one_hot((token + 1) % size, size)
    pairs = [(p, sure), (sure, p), (sure, sure), (sure, other), (p, p)]
    return [pair(([0.5, 0.3, 0.2], [0.0, 1.0, 0.0])), *map(pair, pairs)]


def residual_cases(rng: random.Random) -> Sequence[Case]:
    """Distributions that differ, one row and several."""
    size = rng.randrange(5, 9)
    return [
        pair(([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])),
        pair(([0.6, 0.3, 0.1], [0.1, 0.2, 0.7])),
        pair(*((spread(rng, size), spread(rng, size)) for _ in range(4))),
    ]


def sure_cases(rng: random.Random) -> Sequence[Case]:
    """Greedy rows, certain drafts, and tokens that one of both never says."""
    size = rng.randrange(4, 8)
    token, p = rng.randrange(size), spread(rng, size)
    sure, other = one_hot(token, size), one_hot((token + 1) % size, size)
    pairs = [(sure, other), (sure, p), (p, sure), (other, sure)]
    return [
        pair(([0.0, 1.0, 0.0], [0.25, 0.25, 0.5])),
        pair(([0.5, 0.5, 0.0], [0.0, 0.5, 0.5])),
        *map(pair, pairs),
    ]


def equal_cases(rng: random.Random) -> Sequence[Case]:
    """Nothing is lacking, or next to nothing."""
    size = rng.randrange(4, 8)
    token, p = rng.randrange(size), spread(rng, size)
    sure, tiny = one_hot(token, size), 2.0 ** -rng.randrange(19, 22)
    near = [0.5 - tiny, 0.25 + tiny, 0.25]
    return [
        pair(([0.5, 0.3, 0.2], [0.5, 0.3, 0.2])),
        pair(([0.5, 0.25, 0.25], near)),
        pair((sure, sure)),
        pair((p, p), (p, sure)),
    ]


# Picks.


def picks(weights: Sequence[float], draws: Sequence[float]) -> Case:
    """The same weights for each draw; draws that lie near a border are left out."""
    borders = list(accumulate(weights))
    clear = [u for u in draws if min(abs(u - border) for border in borders) > MARGIN]
    return {
        "weights": torch.tensor([list(weights)] * len(clear)),
        "draws": torch.tensor(clear, dtype=torch.float64),
    }


def described_picks(case: Case) -> str:
    """The weights of the first row, in one line."""
    size, vocab = case["weights"].shape
    return f"weights={_told(case['weights'])} (S={size}, V={vocab})"


def grid(count: int) -> list[float]:
    """Draws from 0 to 1, evenly."""
    return [(i + 0.5) / count for i in range(count)]


def grid_cases(rng: random.Random) -> Sequence[Case]:
    """Draws that run through all tokens."""
    weights = spread(rng, 6)
    return [
        picks([0.5, 0.3, 0.2], [0.1, 0.6, 0.9]),
        picks(weights, grid(100)),
        picks([weights[0] / 2, 0.0, *weights[1:5], 0.0, weights[5] + weights[0] / 2], grid(50)),
    ]


def own_weights_cases(rng: random.Random) -> Sequence[Case]:
    """Each row has weights of its own."""
    rows = [picks(spread(rng, 5), [rng.random() for _ in range(3)]) for _ in range(8)]
    return [{name: torch.cat([row[name] for row in rows]) for name in ("weights", "draws")}]


def zero_cases(rng: random.Random) -> Sequence[Case]:
    """The first and the last draw there is, where the first and last tokens have no weight."""
    size, empty = rng.randrange(400, 900), rng.randrange(2, 20)
    large = [rng.random() + 0.1 for _ in range(size)]
    padded = [0.0] * empty + [weight / sum(large) for weight in large] + [0.0] * empty
    ends = [0.0, JUST_BELOW_1]
    return [
        _ends([0.0, 0.5, 0.5, 0.0], ends),
        _ends(one_hot(2, 5), [0.0, 0.5, JUST_BELOW_1]),
        _ends(padded, ends),
        # So many that float32 does not quite sum them up to 1.
        _ends([0.0, *[1 / 3000] * 3000, 0.0], ends),
    ]


def _ends(weights: Sequence[float], draws: Sequence[float]) -> Case:
    return {
        "weights": torch.tensor([list(weights)] * len(draws)),
        "draws": torch.tensor(draws, dtype=torch.float64),
    }
