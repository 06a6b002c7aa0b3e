"""The books of an engine at the moment when a step begins."""

from minillm_serve.core.batch import Batch
from minillm_serve.core.metrics import StepRecord
from minillm_serve.core.scheduler import Scheduler


def snapshot(scheduler: Scheduler, batch: Batch, began: float) -> StepRecord:
    """The step as it is about to run: what it holds is known before, what it gives after."""
    blocks, num_tokens = scheduler.blocks, batch.num_tokens
    holders = (*scheduler.running, *scheduler.leaving)
    # Shared blocks are full. So whatever several sequences name is a full block, counted once.
    twice = sum(len(s.block_table) for s in holders) - blocks.num_used
    return StepRecord(
        began=began,
        ended=began,
        num_scheduled=len(batch.scheduled),
        num_tokens=num_tokens,
        num_sampled=0,
        num_running=len(holders),
        num_waiting=len(scheduler.waiting),
        num_preempted=len(batch.preempted),
        blocks_used=blocks.num_used,
        tokens_stored=sum(s.num_computed for s in holders) + num_tokens - twice * blocks.block_size,
        num_idle=batch.num_idle,
        blocks_swapped_out=len(batch.blocks_to_swap_out),
        blocks_swapped_in=len(batch.blocks_to_swap_in),
    )
