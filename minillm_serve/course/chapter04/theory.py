"""How many steps a batch takes, from the distribution of answer lengths alone.

A static batch of B answers takes as many steps as its longest one needs, and writes B times the
mean. So with a queue that never empties

    static:       used = mean / E[longest of B]
    continuous:   used = 1
    gain        = E[longest of B] / mean

For answers whose lengths are exponential (`Geometric`, nearly) that is the harmonic number of B,
1 + 1/2 + ... + 1/B (Renyi, 1953): it grows for ever, as the logarithm of B. A queue that does end
leaves a tail: who goes to a free slot in order of arrival is Graham's list scheduling, see
`most_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from minillm_serve.sim.lengths import Fixed, Geometric, LogNormal, Uniform

Known = Fixed | Uniform | Geometric | LogNormal
"""Lengths whose distribution is known here."""

_NEGLIGIBLE = 1e-6  # chance that the longest of a batch is longer than what is summed over
_CHUNK = 4096


def spread(mean: float, cv: float, high: int | None = None) -> Fixed | LogNormal:
    """Lengths of a mean and a spread; all alike for `cv` 0.

    Args:
        mean: tokens.
        cv: standard deviation over mean.
        high: most tokens.
    """
    return LogNormal(mean, cv, high) if cv > 0 else Fixed(round(mean))


@lru_cache(maxsize=1024)
def expected_longest(lengths: Known, batch: int) -> float:
    """Tokens of the longest of `batch` independent answers, on average: E[max(n_1, ..., n_B)].

    It is the sum over k = 0, 1, 2, ... of the chance that the longest exceeds k.

    Raises:
        ValueError: the batch is empty, or nothing is known of the distribution.
    """
    if batch < 1:
        raise ValueError(f"batch={batch}: give 1 or more")
    total, start = 0.0, 0
    while True:
        exceeds = 1 - _at_most(lengths, np.arange(start, start + _CHUNK)) ** batch
        total += float(exceeds.sum())
        start += _CHUNK
        if exceeds[-1] < _NEGLIGIBLE:
            return total


def mean_length(lengths: Known) -> float:
    """Tokens of an answer on average, rounding and cutting included."""
    return expected_longest(lengths, 1)


def gain(lengths: Known, batch: int) -> float:
    """Steps of static over steps of continuous batching, while the queue never empties."""
    return expected_longest(lengths, batch) / mean_length(lengths)


def least_steps(lengths: Sequence[int], batch: int) -> int:
    """Steps below which no schedule of these answers can end: all slots full, or the longest."""
    return max(-(-sum(lengths) // batch), max(lengths))


def most_steps(lengths: Sequence[int], batch: int) -> float:
    """Steps that continuous batching never exceeds, in whatever order they come.

    The bound of list scheduling (Graham, 1966): when the last answer began no slot was free, so
    what had been written by then is at most (all - last) / B steps.
    """
    longest = max(lengths)
    return (sum(lengths) - longest) / batch + longest


def _at_most(lengths: Known, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """The chance that an answer has at most k tokens, [k]."""
    match lengths:
        case Fixed(tokens):
            return (k >= tokens).astype(float)
        case Uniform(low, high):
            return np.clip((k - low + 1) / (high - low + 1), 0.0, 1.0)
        case Geometric(mean):
            return np.asarray(1 - (1 - 1 / mean) ** k, dtype=float)
        case LogNormal():
            return _log_normal(lengths, k)
    raise ValueError(f"lengths={lengths!r}: choose Fixed, Uniform, Geometric or LogNormal")


def _log_normal(lengths: LogNormal, k: NDArray[np.int64]) -> NDArray[np.float64]:
    variance = math.log1p(lengths.cv**2)  # of the logarithm
    middle = math.log(lengths.mean) - variance / 2
    # Draws are rounded, so up to k + 1/2 they become k.
    z = (np.log(k + 0.5) - middle) / math.sqrt(2 * variance)
    share = 0.5 + 0.5 * np.fromiter(map(math.erf, z), dtype=float, count=len(z))
    share[k < 1] = 0.0
    if lengths.high is not None:
        share[k >= lengths.high] = 1.0
    return share
