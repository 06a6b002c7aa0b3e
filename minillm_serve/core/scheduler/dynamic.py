"""Dynamic batching: wait for a full batch, but not for long."""

from typing import ClassVar

from minillm_serve.core.scheduler.fixed import FixedBatchScheduler


class DynamicScheduler(FixedBatchScheduler):
    """Begins a batch when it is full, when somebody has waited long enough, or when flushed.

    This is the dynamic batcher of NVIDIA Triton Inference Server: whole requests are gathered up to
    a greatest batch, and none of them waits longer than a greatest delay for others to join.
    """

    DEFAULT_DELAY: ClassVar[float] = 0.05

    @property
    def due(self) -> float:
        """See `FixedBatchScheduler`."""
        return self.waiting.oldest().arrival_time + self.max_queue_delay
