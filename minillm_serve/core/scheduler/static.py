"""Static batching: wait for a full batch."""

import math
from typing import ClassVar

from minillm_serve.core.scheduler.fixed import FixedBatchScheduler


class StaticScheduler(FixedBatchScheduler):
    """Begins a batch when it is full, when nobody has come for a while, or when flushed.

    While people keep coming, whoever came first waits until there are enough of them. The rest of
    a crowd, too few to fill a batch, begins `max_queue_delay` after the last of them came: by
    default never, unless `flush` says that nobody else is coming.
    """

    DEFAULT_DELAY: ClassVar[float] = math.inf

    @property
    def due(self) -> float:
        """See `FixedBatchScheduler`."""
        return self.waiting.newest().arrival_time + self.max_queue_delay
