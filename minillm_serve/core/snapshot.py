"""The books of an engine at the moment when a step begins."""

from collections.abc import Iterable
from dataclasses import replace

from minillm_serve.core.batch import Batch, ScheduledSequence, StepResult
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


def with_drafts(batch: Batch, result: StepResult) -> list[ScheduledSequence]:
    """The slices of a step that had room for drafts, with the drafts that were really made."""
    pairs = zip(batch.scheduled, result.outputs, strict=True)
    return [item.with_drafts(output.draft_token_ids) for item, output in pairs if item.num_drafts]


def without_empty_room(
    record: StepRecord, batch: Batch, verified: Iterable[ScheduledSequence]
) -> StepRecord:
    """The step as it has run: room that no draft was found for was not computed.

    Args:
        record: the step as it was about to run.
        batch: the step.
        verified: see `with_drafts`.
    """
    room = sum(item.num_drafts for item in batch.scheduled)
    empty = room - sum(item.num_drafts for item in verified)
    if not empty:
        return record
    return replace(
        record, num_tokens=record.num_tokens - empty, tokens_stored=record.tokens_stored - empty
    )
