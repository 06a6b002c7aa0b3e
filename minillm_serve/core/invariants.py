"""What must be true of the bookkeeping between any two steps."""

from collections import Counter

from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.errors import InvariantViolation
from minillm_serve.core.request import Sequence, SequenceStatus
from minillm_serve.core.scheduler.base import Scheduler
from minillm_serve.core.scheduler.endings import is_full


def check_invariants(scheduler: Scheduler) -> None:
    """Checks pool, tables, queue and running set against each other.

    Raises:
        InvariantViolation: saying what contradicts what.
    """
    _check_blocks(scheduler)
    _expect(
        len(scheduler.running) <= scheduler.max_num_seqs,
        f"{len(scheduler.running)} sequences run, max_num_seqs is {scheduler.max_num_seqs}",
    )
    for sequence in scheduler.running:
        _check_running(scheduler, sequence)
    for sequence in scheduler.leaving:
        _expect(sequence.num_under_way > 0, f"no step uses its blocks any more: {sequence}")
        _expect(sequence not in scheduler.running, f"running and leaving: {sequence}")
    for sequence in (*scheduler.waiting, *scheduler.siblings):
        _check_waiting(scheduler, sequence)
    _check_swap_space(scheduler)


def check_batch(scheduler: Scheduler, batch: Batch) -> None:
    """Checks what `schedule` returned, before it runs.

    Raises:
        InvariantViolation: saying what is wrong with the batch.
    """
    budget = scheduler.max_num_batched_tokens
    _expect(batch.num_tokens <= budget, f"{batch.num_tokens} tokens exceed the budget of {budget}")
    sequences = {s.sequence for s in batch.scheduled}
    _expect(len(sequences) == len(batch.scheduled), "a sequence is scheduled twice")
    for item in batch.scheduled:
        sequence = item.sequence
        _expect(sequence.status is SequenceStatus.RUNNING, f"scheduled, not running: {sequence}")
        _expect(item.num_tokens >= 1, f"computes no token: {item}")
        _expect(item.start == sequence.num_computed, f"starts at the wrong position: {item}")
        _expect(item.known_end > item.start, f"computes nothing but drafts: {item}")
        _expect(item.known_end <= len(sequence), f"computes past the end: {item}")
        _expect(item.samples == (item.known_end == len(sequence)), f"wrong 'samples': {item}")
        _check_drafts(scheduler, item)
        covered = len(sequence.block_table) * scheduler.blocks.block_size
        _expect(item.end <= covered, f"has blocks for {covered} tokens only: {item}")
    _check_copies(batch)


def check_idle(scheduler: Scheduler) -> None:
    """Checks that nothing is left behind when no request is in the engine.

    Raises:
        InvariantViolation: naming what leaked.
    """
    check_invariants(scheduler)
    _expect(scheduler.num_unfinished == 0, f"{scheduler.num_unfinished} sequences left")
    _expect(not scheduler.leaving, f"{len(scheduler.leaving)} sequences never let go of")
    _expect(not scheduler.blocks.num_used, f"{scheduler.blocks.num_used} blocks leaked")
    if (space := scheduler.blocks.swap_space) is not None:
        held = space.pool.num_blocks - space.pool.num_free - len(space.vacated)
        _expect(held == 0, f"{held} blocks of the host leaked")


def _check_blocks(scheduler: Scheduler) -> None:
    pool, cache = scheduler.blocks.pool, scheduler.blocks.shared.cache
    holders = (*scheduler.running, *scheduler.leaving)
    named = Counter(block for sequence in holders for block in sequence.block_table)
    named.update(copy.source for copy in scheduler.blocks.copies)
    kept = 0
    for block in range(pool.num_blocks):
        indexed = cache is not None and block in cache
        kept += indexed and not named[block]
        _expect(
            pool.ref_count(block) == named[block] + indexed,
            f"block {block} is referenced {pool.ref_count(block)} times, named by {named[block]} "
            f"tables and {'' if indexed else 'not '}indexed",
        )
    _expect(
        pool.num_free + kept + len(named) == pool.num_blocks,
        f"{pool.num_free} free, {kept} cached and {len(named)} referenced blocks, "
        f"{pool.num_blocks} in all",
    )
    evictable = scheduler.blocks.shared.num_evictable
    _expect(kept == evictable, f"{evictable} blocks are evictable, but {kept} named by no table")
    for sequence in holders:
        _check_depth(scheduler, sequence)


def _check_depth(scheduler: Scheduler, sequence: Sequence) -> None:
    shared = scheduler.blocks.shared
    indexed = [shared.cache is not None and b in shared.cache for b in sequence.block_table]
    depth = shared.depth(sequence)
    wanted = [True] * depth + [False] * (len(indexed) - depth)
    _expect(indexed == wanted, f"the first {depth} blocks should be indexed: {sequence}")
    whole = sequence.num_computed // scheduler.blocks.block_size
    _expect(depth <= whole, f"{depth} blocks are indexed, {whole} are full: {sequence}")


def _check_drafts(scheduler: Scheduler, item: ScheduledSequence) -> None:
    if not item.num_drafts:
        return
    sequence = item.sequence
    _expect(item.samples, f"drafts behind a slice that does not sample: {item}")
    # One more token comes than drafts are right, and then it may be full, but not fuller.
    last = len(sequence) + item.num_drafts
    _expect(not is_full(sequence, last, scheduler.max_len), f"drafts past the end: {item}")


def _check_copies(batch: Batch) -> None:
    targets = [target for _, target in batch.blocks_to_copy]
    _expect(len(set(targets)) == len(targets), f"copies overwrite each other: {batch.copies}")
    sources = {source for source, _ in batch.blocks_to_copy}
    _expect(not sources & set(targets), f"copies read what others write: {batch.copies}")


def _check_swap_space(scheduler: Scheduler) -> None:
    space = scheduler.blocks.swap_space
    if space is None:
        return
    named = Counter(space.vacated)
    for sequence in scheduler.waiting:
        named.update(sequence.host_table)
    for block in range(space.pool.num_blocks):
        _expect(
            space.pool.ref_count(block) == named[block],
            f"block {block} of the host is referenced {space.pool.ref_count(block)} times "
            f"and named by {named[block]} tables",
        )


def _check_waiting(scheduler: Scheduler, sequence: Sequence) -> None:
    swapped = sequence.status is SequenceStatus.SWAPPED
    waits = swapped or sequence.status in (SequenceStatus.WAITING, SequenceStatus.PREEMPTED)
    _expect(waits, f"in the queue, but not waiting: {sequence}")
    _expect(not sequence.block_table, f"waiting, but holding blocks: {sequence}")
    _expect(swapped or sequence.num_computed == 0, f"computed tokens without blocks: {sequence}")
    _expect(
        len(sequence.host_table) == scheduler.blocks.num_blocks_for(sequence.num_computed),
        f"{len(sequence.host_table)} blocks on the host: {sequence}",
    )


def _check_running(scheduler: Scheduler, sequence: Sequence) -> None:
    _expect(sequence.status is SequenceStatus.RUNNING, f"in the running set: {sequence}")
    _expect(sequence.num_uncomputed >= 1, f"nothing left to compute: {sequence}")
    _expect(len(sequence) < scheduler.max_len, f"past max_len: {sequence}")
    covered = len(sequence.block_table) * scheduler.blocks.block_size
    _expect(sequence.num_computed <= covered, f"computed tokens without blocks: {sequence}")
    surplus = len(sequence.block_table) - scheduler.blocks.num_blocks_for(len(sequence))
    _expect(not sequence.host_table, f"running, but with blocks on the host: {sequence}")
    _expect(surplus <= 0, f"{surplus} blocks more than it has tokens for: {sequence}")


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolation(message)
