"""ex09's picture: goodput over the batch, and where a plan stands on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from minillm_serve.course import plots
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.plans_ex09 import described, promised_cases, serve

Plan = Callable[..., tuple[int, int]]


def example(number: int = 0) -> Case:
    """A server, a crowd and promises: the arguments of `plan`. Every number is another one."""
    return promised_cases(random.Random(number))[0]


def goodput_picture(plan: Plan, case: Case) -> Figure:
    """Goodput for batches around the plan's, with the plan's budget.

    Args:
        plan: gives (max_num_seqs, max_num_batched_tokens).
        case: its arguments, such as `example()`.
    """
    batch, budget = plan(**case)
    known: dict[str, Any] = {name: case[name] for name in ("cost", "traffic", "slo")}
    batches = sorted({max(1, round(batch * share)) for share in (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)})
    seen = {b: serve(**known, batch=b, budget=max(budget, b + 1)) for b in batches}
    fig, ax = plots.figure(height=3.6)
    good = [one.goodput for one in seen.values()]
    slow = [one.slow for one in seen.values()]
    ax.plot(batches, good, "o-", ms=6, color=plots.COLORS["useful"])
    for b, y, share in zip(batches, good, slow, strict=True):
        ax.annotate(
            f"{share:.0%} too slow", (b, y), (0, 9), textcoords="offset points", ha="center",
            fontsize=9, color="#52606D", bbox={"fc": "white", "ec": "none", "pad": 0.5},
        )  # fmt: skip
    ax.axvline(batch, color=plots.INK, lw=1.4, ls=":")
    ax.set_ylim(0, 1.15 * max(good))
    ax.margins(x=0.1)
    best = max(seen, key=lambda b: seen[b].goodput)
    plots.label(
        ax,
        x="max_num_seqs",
        y="people/s served as promised",
        title=f"Your batch is {batch}; of these {best} does best",
    )
    return fig


__all__ = ["described", "example", "goodput_picture"]
