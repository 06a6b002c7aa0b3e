"""Operating points: how large a batch, and how many people, does a promise afford?

A full server answers B people all the time. Each brings `prompt` tokens and takes `output` of them,
so for every token that a step gives, prompt / output tokens of somebody's prompt are read in it as
well. Bytes and arithmetic of both grow with B, so the mean step of a cost model is a line:

    t(B) = fixed + each * B             seconds
    B / t(B)                            output tokens a second, below the ceiling 1 / each
    (B / t(B)) / ceiling = 1 - fixed / t(B)

The last line is the whole tradeoff: what a promise of t seconds a token leaves of the ceiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.metrics import SLO
from minillm_serve.sim.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a person brings and takes, on average.

    Attributes:
        prompt: tokens of the prompt.
        output: tokens of the answer.
    """

    prompt: float
    output: float

    def __post_init__(self) -> None:
        """Raises ValueError for a mean below 1."""
        for name in ("prompt", "output"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"Traffic.{name} is {getattr(self, name)!r}: give tokens, 1 or more"
                )

    @property
    def context(self) -> float:
        """Tokens that a sequence has, at a random moment of its answer."""
        return self.prompt + (self.output + 1) / 2


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a step over the sequences in it.

    Attributes:
        fixed: what a step takes whatever it computes [s].
        each: what a sequence adds, its share of prompts included [s].
    """

    fixed: float
    each: float

    def seconds(self, batch: float) -> float:
        """A step of so many sequences; at the same time what each of them waits for a token."""
        return self.fixed + self.each * batch

    def throughput(self, batch: float) -> float:
        """Output tokens a second of the whole server."""
        return batch / self.seconds(batch)

    @property
    def ceiling(self) -> float:
        """What throughput tends to as the batch grows."""
        return 1 / self.each

    @property
    def half(self) -> float:
        """The batch at half of the ceiling; its step takes twice the time of an empty one."""
        return self.fixed / self.each

    def within(self, seconds: float) -> float:
        """The batch whose step takes so long; below 0 if even an empty one takes longer."""
        return (seconds - self.fixed) / self.each

    def settles_at(self, tokens_a_second: float) -> float:
        """The batch that comes about by itself; infinite if so much is more than the ceiling.

        Little (1961): as many are inside as come, times how long they stay. Whoever takes n tokens
        stays n * t(B), so B = rate * n * t(B), which is solved for B here.

        Args:
            tokens_a_second: rate * n, tokens that are asked for.
        """
        load = tokens_a_second * self.each
        return math.inf if load >= 1 else tokens_a_second * self.fixed / (1 - load)


def mean_step(cost: CostModel, traffic: Traffic) -> Line:
    """The mean step of a full server, over its batch size.

    (With fractions of tokens: it is a mean. A cost model is linear in every field of `Work`.)
    """
    share = traffic.prompt / traffic.output
    pairs = traffic.context + share * (traffic.prompt + 1) / 2
    # A chunk reads the KV of what it continues, which is next to nothing beside its arithmetic.
    one = Work(1, 1 + share, 1, traffic.context, pairs)  # type: ignore[arg-type]
    fixed = cost.seconds(Work(0, 0, 0, 0, 0)) + _head(cost)
    return Line(fixed, cost.seconds(one) - fixed)


def _head(cost: CostModel) -> float:
    """Seconds to read the output head, which a step without samples does not."""
    memory, _ = cost.terms(Work(0, 0, 1, 0, 0))
    nothing, _ = cost.terms(Work(0, 0, 0, 0, 0))
    return memory - nothing


def full_step(cost: CostModel, traffic: Traffic, batch: int, budget: int) -> float:
    """Seconds of the dearest usual step: everybody types, and prompts take what is left.

    Args:
        cost: prices steps.
        traffic: whose prompts.
        batch: sequences that type.
        budget: tokens a step, above `batch` (`max_num_batched_tokens`).
    """
    rows = budget - batch
    prompts = max(1, math.ceil(rows / traffic.prompt))
    pairs = batch * traffic.context + rows * (traffic.prompt + 1) / 2
    context = batch * traffic.context + rows
    return cost.seconds(Work(batch + prompts, budget, batch + prompts, context, pairs))  # type: ignore[arg-type]


def reading(cost: CostModel, traffic: Traffic, batch: int, budget: int) -> float:
    """Seconds in which a prompt is read beside `batch` who type, if nobody else's is."""
    steps = math.ceil(traffic.prompt / (budget - batch))
    return steps * full_step(cost, traffic, batch, min(budget, batch + math.ceil(traffic.prompt)))


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Settings of an engine, and what they are good for.

    Attributes:
        max_num_seqs: the batch [B].
        max_num_batched_tokens: the budget [C].
        max_wait: seconds after which whoever has not begun is to be turned away: half of what was
            promised for the first token. The other half is for reading the prompt.
        tpot: seconds a token when the server is full.
        rate: people a second that it answers then.
        bound_by: "the promise", or "memory" if more would keep it and do not fit.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_wait: float
    tpot: float
    rate: float
    bound_by: str


def solve(
    cost: CostModel,
    traffic: Traffic,
    slo: SLO,
    *,
    kv_tokens: int,
    gap: float = math.inf,
    headroom: float = 0.1,
    most: int = 8192,
) -> OperatingPoint:
    """The largest batch, and then the largest budget, that keep all promises.

    Both raise what the server can do, and both are paid for by those who type: the batch in every
    token, the budget in the longest gap.

    Args:
        cost: prices steps.
        traffic: who comes.
        slo: promises about the first token and about the mean gap.
        kv_tokens: tokens that the KV cache holds.
        gap: promise about the longest gap [s].
        headroom: share of a promise that is kept back: formulas are about the mean person, and
            promises are made to all.
        most: the largest budget to be considered.

    Raises:
        ValueError: a promise that not even a batch of 1 keeps, or memory for nobody; says which.
    """
    line, keep = mean_step(cost, traffic), 1 - headroom
    room = int(kv_tokens // (traffic.prompt + traffic.output))
    if room < 1:
        raise ValueError(
            f"kv_tokens={kv_tokens} hold nobody: {traffic.prompt + traffic.output:.0f} are needed"
        )
    afford = line.within(keep * slo.tpot)
    if afford < 1:
        raise ValueError(
            f"tpot={slo.tpot:g} s cannot be kept: alone, a token takes {line.seconds(1):.3g} s, "
            f"and {headroom:.0%} is kept back"
        )
    batch = int(min(room, afford))
    budget = largest_budget(cost, traffic, batch, keep * gap, most)
    if budget is None:
        raise ValueError(
            f"gap={gap:g} s cannot be kept beside a batch of {batch}: a step that reads a single "
            f"token of a prompt takes {full_step(cost, traffic, batch, batch + 1):.3g} s"
        )
    if reading(cost, traffic, batch, budget) > slo.ttft / 2:
        raise ValueError(
            f"ttft={slo.ttft:g} s cannot be kept: reading a prompt takes "
            f"{reading(cost, traffic, batch, budget):.3g} s at {budget} tokens a step, and half of "
            "the promise is for waiting in line"
        )
    return OperatingPoint(
        batch,
        budget,
        slo.ttft / 2,
        line.seconds(batch),
        line.throughput(batch) / traffic.output,
        "memory" if room <= afford else "the promise",
    )


def largest_budget(
    cost: CostModel, traffic: Traffic, batch: int, gap: float, most: int
) -> int | None:
    """The most tokens a step that take no longer than `gap` seconds; None if none do."""
    low, high = batch, most  # the answer lies above low, if there is one, and at most at high
    if full_step(cost, traffic, batch, batch + 1) > gap:
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if full_step(cost, traffic, batch, middle) <= gap else (low, middle)
        )
    return high if full_step(cost, traffic, batch, high) <= gap else low


def attainment(outcome: Outcome, slo: SLO) -> float:
    """Share of all who came that got what was promised; who was turned away did not."""
    came = len(outcome) + outcome.num_refused + outcome.num_expired
    return outcome.goodput(slo) * outcome.makespan / came if came else 0.0
