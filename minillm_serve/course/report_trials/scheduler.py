"""The crowd, as the scheduler lets it in."""

from __future__ import annotations

from typing import Any

from minillm_serve.core import BlockManager, ContinuousScheduler
from minillm_serve.course.report_card import Counters, Measure, Trial
from minillm_serve.course.report_trials.crowd import CROWD, SLOTS, num_served, serve_crowd, visits
from minillm_serve.parts import Part
from minillm_serve.parts.scheduler import fit_scheduler


def trial(yours: Any) -> Trial:
    """The same crowd."""
    return Trial(
        trace=CROWD,
        naive=OneAtATime,
        naive_is="serves one user at a time",
        reference=ContinuousScheduler,
        measures=(
            Measure("users served", "=", len(visits())),
            Measure("steps", "<=", slack=0.1),
            Measure("tokens a step", ">=", slack=0.1, format=".1f"),
            Measure("idle slots", "<=", slack=0.1, format=".0%"),
            Measure("preemptions", "<=", slack=0.5),
        ),
        count=_count_scheduler,
        work=lambda scheduler: serve_crowd(scheduler=scheduler),
    )


class OneAtATime(ContinuousScheduler):
    """Continuous batching of one."""

    def __init__(self, blocks: BlockManager, **limits: Any) -> None:
        super().__init__(blocks, **{**limits, "max_num_seqs": 1})


def _count_scheduler(part: Part) -> Counters:
    scheduler = fit_scheduler(part, ContinuousScheduler)
    with part.trial("the trace"):
        rehearsed = serve_crowd(scheduler=scheduler)
    steps, slots = rehearsed.steps, SLOTS * len(rehearsed.steps)
    return {
        "users served": num_served(rehearsed),
        "steps": len(steps),
        "tokens a step": sum(step.num_tokens for step in steps) / len(steps),
        "idle slots": 1 - sum(step.num_scheduled for step in steps) / slots,
        "preemptions": rehearsed.preemptions,
    }
