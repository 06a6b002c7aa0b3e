"""How an engine builds its scheduler."""

from typing import Protocol

from minillm_serve.core.block_manager import BlockManager
from minillm_serve.core.scheduler.base import Scheduler


class MakeScheduler(Protocol):
    """A scheduler class, or anything that builds one alike: `partial(StaticScheduler, ...)`."""

    def __call__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_len: int,
    ) -> Scheduler:
        """See `Scheduler`."""
        ...
