"""Who goes first: a number for each request, given once when it arrives."""

from dataclasses import dataclass
from typing import Protocol

from minillm_serve.core.request import Request


class Policy(Protocol):
    """Ranks requests: the lower goes first, and is the last to be preempted.

    A rank never changes, so that a heap keeps the queue in order: O(log n) for whoever comes or
    goes, however many wait. Equal ranks go by order of arrival.
    """

    def rank(self, request: Request, number: int) -> float:
        """The rank of a request before which `number` others came."""
        ...


@dataclass(frozen=True, slots=True)
class FirstComeFirstServed:
    """By order of arrival. Nobody starves."""

    def rank(self, request: Request, number: int) -> float:
        """See `Policy`."""
        return number


@dataclass(frozen=True, slots=True)
class Priority:
    """By `Request.priority`, the lower first, with ageing.

    Who waits grows older with each newcomer, and `ageing` newcomers weigh as much as one step of
    priority. All who wait age alike, so their order never changes, and ageing is nothing but

        rank = ageing * priority + number of arrival

    A request is overtaken by at most ageing * (p - q) later ones of priority q < p: nobody starves.

    Attributes:
        ageing: above 0; None never lets anybody age, and whoever is unimportant may wait for ever.

    Raises:
        ValueError: `ageing` is not above 0.
    """

    ageing: float | None = 100.0

    def __post_init__(self) -> None:
        if self.ageing is not None and not self.ageing > 0:
            raise ValueError(f"ageing={self.ageing!r}: give newcomers above 0, or None for never")

    def rank(self, request: Request, number: int) -> float:
        """See `Policy`."""
        if self.ageing is None:
            return request.priority
        return self.ageing * request.priority + number


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """By tokens of prompt and answer, the fewest first: for comparison.

    No other order has a shorter mean wait. But a server does not know how long an answer will be,
    only how long it may get (`max_tokens`), and while short requests keep coming a long one
    starves.
    """

    def rank(self, request: Request, number: int) -> float:
        """See `Policy`."""
        limit = request.params.max_tokens
        return float("inf") if limit is None else len(request.prompt_token_ids) + limit


#: By the names that `LLM(policy=...)` takes.
POLICIES: dict[str, type[Policy]] = {
    "fcfs": FirstComeFirstServed,
    "priority": Priority,
    "sjf": ShortestFirst,
}
