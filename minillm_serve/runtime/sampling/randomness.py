"""Random numbers without state."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

MASK = 2**64 - 1

#: Streams of numbers beside the one that tokens are chosen with: one draws drafts, one tests them.
#: (Any constants would do that differ; these are their names in ASCII.)
DRAFT, TEST = int.from_bytes(b"drafting"), int.from_bytes(b"test  it")


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position) alone.

    Counter-based: a sequence's draw at a position is the same whatever was drawn before it and
    for whom, so chunking, preemption and neighbours cannot change it. The mixing is SplitMix64's
    (Steele, Lea and Flood, 2014), of the seed and again of its result plus the position; the
    upper 53 bits fill a float64.
    """
    return (_mix(_mix(seed) + position) >> 11) / 2**53


def uniforms(seeds: Sequence[int], positions: np.ndarray) -> np.ndarray:
    """The same for many at once: float64 [S, N] of S seeds and of int64 positions [S, N]."""
    mixed = _mix(np.array([seed & MASK for seed in seeds], np.uint64))
    return (_mix(mixed[:, None] + positions.astype(np.uint64)) >> 11) / 2**53


def stream(seed: int, which: int) -> int:
    """The seed of another stream of a sequence, for `uniform`.

    Speculative decoding draws up to three numbers for a position: of a draft, of its test and of
    the token itself. They must not depend on each other, or the tokens' distribution is lost: a
    draft that was drawn by the number that tests it passes too often.

    Args:
        seed: of the sequence.
        which: DRAFT or TEST.

    Returns:
        From 0 to 2^64 - 1; depends on the lowest 64 bits of the seed.
    """
    return _mix(seed ^ which)


Bits = TypeVar("Bits", int, np.ndarray)


def _mix(value: Bits) -> Bits:
    """SplitMix64 of an integer, or of uint64 arrays, which wrap around by themselves."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)
