"""A prefix cache for simulations: everybody's prompt begins with the same tokens.

The simulated engine looks at lengths only, so it has nothing to find. What a cache does to *time*
can be told it all the same, if every request begins with one system prompt that is in the cache:

- nobody computes these tokens: prompts are shortened by them (`shortened`),
- everybody still reads their keys and values, and attends to them (`SharedPrefixCost`),
- they are kept once, so the pool has their blocks less, for all together (the caller's to do).

What is left out: looking up, publishing, evicting, and the first request, which finds nothing.
Chapter 06 measures those on the real cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel, Work


@dataclass(frozen=True)
class SharedPrefixCost(CostModel):
    """Prices steps of sequences that all begin with the same cached tokens.

    Attributes:
        shared_tokens: in front of every sequence, besides those that the engine knows of.
    """

    shared_tokens: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError as `CostModel` does, and for a negative number of tokens."""
        CostModel.__post_init__(self)
        if self.shared_tokens < 0:
            raise ValueError(f"shared_tokens={self.shared_tokens}: give 0 or more")

    def terms(self, work: Work) -> tuple[float, float]:
        """Every sequence reads the shared tokens, and every row of it attends to them."""
        shared = self.shared_tokens
        longer = replace(
            work,
            context=work.context + work.sequences * shared,
            pairs=work.pairs + work.tokens * shared,
        )
        return CostModel.terms(self, longer)


def shortened(arrivals: Iterable[Arrival], tokens: int) -> Iterator[Arrival]:
    """The same people with so many tokens less to be computed; the last one always is.

    Raises:
        ValueError: a prompt is no longer than what it is said to begin with.
    """
    for arrival in arrivals:
        if arrival.prompt_tokens <= tokens:
            raise ValueError(
                f"a prompt of {arrival.prompt_tokens} tokens cannot begin with {tokens} shared "
                "ones and have one of its own"
            )
        yield replace(arrival, prompt_tokens=arrival.prompt_tokens - tokens)
