"""Room for drafts in a step, and what became of them."""

from collections.abc import Iterable

from minillm_serve.core.batch import ScheduledSequence
from minillm_serve.core.block_manager import BlockManager
from minillm_serve.core.request import Sequence
from minillm_serve.core.scheduler.endings import tokens_left
from minillm_serve.core.speculation.lengths import DraftLengths
from minillm_serve.core.speculation.stats import SpecCounter, SpecStats


class Speculation:
    """Lets sequences that decode compute drafts as well, where that is at nobody's expense.

    Which drafts those are is for the executor to find out. Here they are room: in the token budget,
    in blocks, and up to where a sequence ends. Nobody is preempted for drafts, and nobody who waits
    comes in later for them: they get what is left when a step has been put together. Requests with
    structured outputs get none: what may come at a position hangs on the tokens before it.

    Args:
        lengths: how many drafts who gets.
    """

    def __init__(self, lengths: DraftLengths) -> None:
        self.lengths = lengths
        self._counter = SpecCounter()

    @property
    def stats(self) -> SpecStats:
        """Drafts so far, and how many were right."""
        return self._counter.stats

    def add_drafts(
        self,
        scheduled: Iterable[ScheduledSequence],
        blocks: BlockManager,
        *,
        budget: int,
        max_len: int,
    ) -> tuple[ScheduledSequence, ...]:
        """The same slices, some of them with room for drafts.

        Args:
            scheduled: what a step computes, all blocks granted.
            blocks: where drafts get theirs.
            budget: tokens that the step may compute besides.
            max_len: no sequence gets longer.
        """
        items = tuple(scheduled)
        # One token comes in any case, so that one less than what is left may be guessed.
        rooms = {
            item.sequence: room
            for item in items
            if item.samples
            and item.num_tokens == 1
            and item.sequence.params.structured_outputs is None
            and (room := min(budget, tokens_left(item.sequence, max_len) - 1)) > 0
        }
        if not rooms:
            return items
        others = sum(item.num_tokens for item in items) - len(rooms)
        chosen = self.lengths.choose(rooms, others)
        widened = []
        for item in items:
            count = min(chosen.get(item.sequence, 0), budget)
            count = _make_room(blocks, item, count) if count > 0 else 0
            budget -= count
            widened.append(item.with_room(count) if count else item)
        return tuple(widened)

    def note(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """So many drafts of a sequence were verified, and so many of them right."""
        self._counter.add(num_drafted, num_accepted)
        self.lengths.note(sequence, num_drafted, num_accepted)


def _make_room(blocks: BlockManager, item: ScheduledSequence, count: int) -> int:
    """Blocks for so many drafts, or if there are too few, for as many as there is room for."""
    num_blocks = len(item.sequence.block_table) + blocks.num_available
    count = min(count, num_blocks * blocks.block_size - item.end)
    blocks.extend(item.sequence, item.end + count)
    return count
