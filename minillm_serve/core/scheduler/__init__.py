"""Who runs next. One file a way of batching, over the same queue, block manager and commit."""

from minillm_serve.core.scheduler.base import Scheduler
from minillm_serve.core.scheduler.continuous import ContinuousScheduler
from minillm_serve.core.scheduler.dynamic import DynamicScheduler
from minillm_serve.core.scheduler.fixed import FixedBatchScheduler
from minillm_serve.core.scheduler.make import MakeScheduler
from minillm_serve.core.scheduler.policy import (
    POLICIES,
    FirstComeFirstServed,
    Policy,
    Priority,
    ShortestFirst,
)
from minillm_serve.core.scheduler.static import StaticScheduler

__all__ = [
    "POLICIES",
    "ContinuousScheduler",
    "DynamicScheduler",
    "FirstComeFirstServed",
    "FixedBatchScheduler",
    "MakeScheduler",
    "Policy",
    "Priority",
    "Scheduler",
    "ShortestFirst",
    "StaticScheduler",
]
