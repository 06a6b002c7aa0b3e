"""What the report card puts the parts of each slot through: one module a slot.

A trial is a fixed trace, a naive part, the engine's own, and a few counters with their targets.
"""

from collections.abc import Callable
from typing import Any

from minillm_serve.course.report_card import Trial
from minillm_serve.course.report_trials import (
    accept,
    admission,
    attention,
    block_pool,
    kv_budget,
    kv_quantizer,
    prefix_cache,
    scheduler,
)

TRIALS: dict[str, Callable[[Any], Trial]] = {
    "kv_budget": kv_budget.trial,
    "block_pool": block_pool.trial,
    "prefix_cache": prefix_cache.trial,
    "attention": attention.trial,
    "kv_quantizer": kv_quantizer.trial,
    "scheduler": scheduler.trial,
    "admission": admission.trial,
    "accept": accept.trial,
}
