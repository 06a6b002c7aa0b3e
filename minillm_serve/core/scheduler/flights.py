"""Steps that run while the next one is being scheduled."""

from collections import deque

from minillm_serve.core.batch import Batch
from minillm_serve.core.errors import InvariantViolation
from minillm_serve.core.request import NEVER, SequenceStatus


class Flights:
    """Batches under way, and what is true of their sequences meanwhile."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def __contains__(self, batch: object) -> bool:
        return any(batch is b for b in self._batches)

    def begin(self, batch: Batch) -> None:
        """Its tokens count as computed from now on, and its samples as tokens, still pending."""
        self._batches.append(batch)
        for item in batch.scheduled:
            sequence = item.sequence
            sequence.num_under_way += 1
            sequence.num_pending += item.samples
            if sequence.status is SequenceStatus.RUNNING:
                sequence.num_computed = item.known_end  # drafts count when they prove right

    def end(self, batch: Batch, *, written: bool) -> None:
        """It is not under way any more; what it was to write is there, or is not.

        Raises:
            InvariantViolation: an older one is still under way.
        """
        if self._batches.popleft() is not batch:
            raise InvariantViolation("steps are to be committed in the order of their scheduling")
        for item in batch.scheduled:
            sequence = item.sequence
            sequence.num_under_way -= 1
            sequence.num_pending -= item.samples
            if not written:
                sequence.num_written = NEVER
            elif sequence.block_table and sequence.num_written != NEVER:
                sequence.num_written = item.known_end
