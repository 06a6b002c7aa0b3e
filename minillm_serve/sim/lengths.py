"""How long are prompts and answers? Distributions of token counts, from a seeded generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Lengths(Protocol):
    """A distribution over token counts; every draw is 1 or more."""

    @property
    def mean(self) -> float:
        """Expected number of tokens."""
        ...

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` independent draws, [size] tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same number of tokens."""

    tokens: int

    def __post_init__(self) -> None:
        """Raises ValueError unless `tokens` is a whole number of 1 or more."""
        check_tokens("Fixed.tokens", self.tokens)

    @property
    def mean(self) -> float:
        """That number."""
        return float(self.tokens)

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """The number, `size` times; `rng` is not used."""
        return np.full(size, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every count from `low` to `high`, both included, is as likely as any other."""

    low: int
    high: int

    def __post_init__(self) -> None:
        """Raises ValueError for counts below 1 or out of order."""
        check_tokens("Uniform.low", self.low)
        check_tokens("Uniform.high", self.high)
        if self.high < self.low:
            raise ValueError(f"Uniform({self.low}, {self.high}): give low <= high")

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` draws."""
        return rng.integers(self.low, self.high, size, dtype=np.int64, endpoint=True)


@dataclass(frozen=True, slots=True)
class Geometric:
    """As if each token were the last with the same chance: the memoryless one.

    It is the discrete twin of the exponential service times of an M/M/1 queue.
    """

    mean: float

    def __post_init__(self) -> None:
        """Raises ValueError for a mean below 1."""
        if not (math.isfinite(self.mean) and self.mean >= 1):
            raise ValueError(f"Geometric.mean is {self.mean!r}: give a number of tokens from 1 on")

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` draws."""
        return rng.geometric(1 / self.mean, size).astype(np.int64)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Most are short, a few are very long: what chat traffic looks like.

    Attributes:
        mean: expected tokens, before rounding and cutting.
        cv: coefficient of variation, standard deviation over mean; 1 is a wide spread.
        high: most tokens; longer draws are cut to it. None leaves them.
    """

    mean: float
    cv: float = 1.0
    high: int | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a mean below 1, a spread that is not positive, a bad `high`."""
        if not (math.isfinite(self.mean) and self.mean >= 1):
            raise ValueError(f"LogNormal.mean is {self.mean!r}: give a number of tokens from 1 on")
        if not (math.isfinite(self.cv) and self.cv > 0):
            raise ValueError(f"LogNormal.cv is {self.cv!r}: give one above 0, or use Fixed")
        if self.high is not None:
            check_tokens("LogNormal.high", self.high)

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` draws, rounded to whole tokens."""
        variance = math.log1p(self.cv**2)  # of the logarithm
        drawn = rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), size)
        return np.rint(np.clip(drawn, 1, self.high)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths that were seen, drawn again with replacement."""

    tokens: Sequence[int]

    def __post_init__(self) -> None:
        """Raises ValueError if there are none, or one is below 1."""
        if not len(self.tokens):
            raise ValueError("Empirical.tokens is empty: give the lengths that were seen")
        for count in self.tokens:
            check_tokens("Empirical.tokens holds one that", count)

    @property
    def mean(self) -> float:
        """Mean of what was seen."""
        return float(np.mean(self.tokens))

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` draws."""
        return rng.choice(np.asarray(self.tokens, dtype=np.int64), size)


def check_tokens(name: str, count: object) -> None:
    """Refuse what is not a number of tokens.

    Raises:
        ValueError: `count` is not a whole number of 1 or more.
    """
    whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
    if not whole or count < 1:  # type: ignore[operator]
        raise ValueError(f"{name} is {count!r}: give a whole number of tokens, 1 or more")
