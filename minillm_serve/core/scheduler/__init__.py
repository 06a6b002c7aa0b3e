"""Who runs next. One file a policy, over the same queue, block manager and commit."""

from minillm_serve.core.scheduler.base import Scheduler
from minillm_serve.core.scheduler.continuous import ContinuousScheduler

__all__ = ["ContinuousScheduler", "Scheduler"]
