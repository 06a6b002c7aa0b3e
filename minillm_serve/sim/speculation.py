"""What speculative decoding brings, in closed form.

Every draft is taken to be kept with the same probability alpha, whatever became of others: then k
drafts give (1 - alpha^(k+1)) / (1 - alpha) tokens a step on average, and only what a step with k
drafts takes decides whether that pays. (Leviathan, Kalman and Matias 2023, arXiv:2211.17192.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from minillm_serve.core.speculation import Curve, StepCosts
from minillm_serve.core.speculation.costs import FREE
from minillm_serve.sim.cost import CostModel, Work

Seconds: TypeAlias = Callable[[int, int], float]
"""Seconds of a step of B sequences with k drafts each, drafting included."""

#: Rows at which a cost model is asked, to make curves of it.
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens that a step gives a sequence: 1 + alpha + ... + alpha^k (Leviathan 2023, eq. 1).

    Args:
        alpha: probability that a draft is kept.
        k: drafts.

    Raises:
        ValueError: alpha is no probability, or k negative.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha={alpha!r}: expected a probability, from 0 to 1")
    if k < 0:
        raise ValueError(f"k={k}: expected 0 drafts or more")
    return float(k + 1) if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def speedup(alpha: float, k: int, seconds: Seconds, batch: int = 1) -> float:
    """Tokens a second with k drafts over tokens a second with none (Leviathan 2023, theorem 3.8).

    Theirs is the special case of one user whose step takes as long with drafts as without, beside
    c steps for each draft (`by_ratio`): (1 - alpha^(k+1)) / ((1 - alpha) (1 + c k)).
    """
    return expected_tokens(alpha, k) * seconds(batch, 0) / seconds(batch, k)


def break_even_alpha(k: int, seconds: Seconds, batch: int = 1) -> float | None:
    """The alpha from which on k drafts pay; None if they pay at none.

    The root of `speedup` = 1 (Leviathan 2023, theorem 3.8), which grows with alpha, by bisection.
    """
    if speedup(1.0, k, seconds, batch) < 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(53):
        middle = (low + high) / 2
        low, high = (low, middle) if speedup(middle, k, seconds, batch) >= 1 else (middle, high)
    return high


def best_length(alpha: float, seconds: Seconds, batch: int = 1, most: int = 16) -> int:
    """How many drafts pay most, from 0 to `most` (Leviathan 2023, section 3.5)."""
    rates = [speedup(alpha, k, seconds, batch) for k in range(most + 1)]
    return rates.index(max(rates))


def by_ratio(c: float) -> Seconds:
    """Steps that take 1 whatever they verify, and c for each draft: c is Leviathan's (2023)."""
    return lambda batch, k: 1 + c * k


def by_costs(costs: StepCosts) -> Seconds:
    """Steps as they were measured, say."""
    return lambda batch, k: costs.seconds(batch * (1 + k), [batch] * k)


def by_model(cost: CostModel, *, context: int, draft_cost: float = 0.0) -> Seconds:
    """Steps as a cost model has them.

    Args:
        cost: of the model.
        context: tokens that each sequence has.
        draft_cost: what a pass of the drafter takes, in steps of as many sequences.
    """

    def seconds(batch: int, k: int) -> float:
        a_pass = cost.seconds(Work.decode(batch, context)) if k else 0.0
        return cost.seconds(Work.verify(batch, k, context)) + k * draft_cost * a_pass

    return seconds


def step_costs(cost: CostModel, *, context: int, draft_cost: float = 0.0) -> StepCosts:
    """The same for `core.AdaptiveLengths`, which asks for rows, not for drafts of each sequence."""
    plain = [(rows, cost.seconds(Work.decode(rows, context))) for rows in ROWS]
    rows = [(rows, cost.seconds(Work.verify(1, rows - 1, context))) for rows in ROWS]
    passes = Curve((rows, draft_cost * seconds) for rows, seconds in plain)
    return StepCosts(Curve(plain), Curve(rows), passes if draft_cost else FREE)
