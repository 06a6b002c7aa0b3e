"""What every policy shares: the queue, the running set, and what happens after a step."""

import time
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import ClassVar

from minillm_serve.core.batch import (
    Batch,
    ScheduledSequence,
    SequenceOutput,
    SequenceUpdate,
    StepResult,
)
from minillm_serve.core.block_manager import BlockManager
from minillm_serve.core.errors import InvariantViolation
from minillm_serve.core.request import NEVER, FinishReason, Sequence, SequenceStatus
from minillm_serve.core.scheduler.endings import is_full, is_gone, take_tokens
from minillm_serve.core.scheduler.flights import Flights
from minillm_serve.core.scheduler.policy import FirstComeFirstServed, Policy
from minillm_serve.core.scheduler.queue import Deadlines, WaitingQueue
from minillm_serve.core.scheduler.siblings import Siblings, family
from minillm_serve.core.speculation.drafting import Speculation


class Scheduler(ABC):
    """Decides which sequences compute how many tokens in the next step.

    A subclass implements `schedule`. The life of a sequence is the same under all of them:

        add -> waiting --admit--> running --commit--> finished
                  ^                  |
                  +----preempt-------+      (blocks given back, to be swapped in or computed again)

    The next step may be scheduled while one runs: `advance` says that a batch is under way, and
    everything that is known of a sequence without the batch's result is then true of it already.
    Its blocks stay its own until the last step that it takes part in is done.

    Args:
        blocks: where block tables come from.
        max_num_seqs: most sequences in the running set.
        max_num_batched_tokens: most tokens computed in one step (the token budget).
        max_len: length, in tokens, at which a sequence ends. At most the pool's capacity, so
            that the oldest sequence alone can always go on, if it may preempt all others.
        policy: who goes first, and gives way last; by default whoever came first.

    Attributes:
        clock: the time in seconds; the engine hands over its own.
        speculation: how many drafts who gets, if there is somebody to make any.
        waiting: in order of rank.
        siblings: further answers of requests whose first one is still reading the prompt.
        running: in order of rank, if all come in by `admit`.
        draining: nobody else is coming for now, so there is nobody to wait for; see `flush`.
        num_preemptions: how often a running sequence lost its blocks. Of these,
        num_swaps: how often they were copied to the host.
    """

    #: As long as nobody comes, ends or lacks a block, each step is like the one before: every
    #: running sequence computes one token. Simulations then take many steps in one stride. Whoever
    #: decides otherwise (by the time, say, or by turns) leaves this as it is.
    is_steady: ClassVar[bool] = False
    #: Siblings come into the queue when there is something to share with number 0. Otherwise at
    #: once, and it is for `schedule` to have them wait.
    holds_siblings_back: ClassVar[bool] = True

    def __init__(
        self,
        blocks: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_len: int,
        policy: Policy | None = None,
    ) -> None:
        limits = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens}
        for name, value in limits.items():
            if value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        if not 2 <= max_len <= blocks.capacity:
            raise ValueError(
                f"max_len={max_len}: expected from 2 to the pool's capacity of {blocks.capacity} "
                "tokens; raise num_blocks or lower max_model_len"
            )
        self.blocks = blocks
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_len = max_len
        self.policy = policy or FirstComeFirstServed()
        self.clock: Callable[[], float] = time.monotonic
        self.speculation: Speculation | None = None
        self.waiting = WaitingQueue()
        self.siblings = Siblings()
        self.deadlines = Deadlines()
        self.running: list[Sequence] = []
        # Holding blocks for a step under way, and to take part in no later one: aborted, found to
        # have ended while a further step was under way already, or about to reach their last token.
        self.leaving: list[Sequence] = []
        self.draining = False
        self.num_preemptions = 0
        self.num_swaps = 0
        self._numbers = count()
        self._flights = Flights()

    @property
    def num_unfinished(self) -> int:
        """Sequences that have not ended: waiting, running, or about to get their last token."""
        last = sum(s.status is SequenceStatus.RUNNING for s in self.leaving)
        return self.num_waiting + len(self.running) + last

    @property
    def num_waiting(self) -> int:
        """Sequences that have not begun, or lost their blocks; siblings held back included."""
        return len(self.waiting) + len(self.siblings)

    @property
    def is_tight(self) -> bool:
        """Whether the running sequences lack blocks for all tokens that they have."""
        missing = sum(self.blocks.num_missing(s, len(s)) for s in self.running)
        return missing > self.blocks.num_available

    @property
    def num_idle(self) -> int:
        """Rows of a fixed batch whose sequences have ended; see `Batch.num_idle`."""
        return 0

    @property
    def next_wakeup(self) -> float | None:
        """Until when it waits on purpose, for others to come; None if it does not.

        Infinity: until somebody comes, or `flush`.
        """
        return None

    def flush(self) -> None:
        """Says that nobody else is coming, so that nobody is waited for. (Until somebody comes.)"""
        self.draining = True

    def add(self, sequence: Sequence, *siblings: Sequence) -> None:
        """Queues a new sequence, which must have passed the door (`Admission`).

        Its siblings have the ranks right behind it.
        """
        number = next(self._numbers)
        sequence.rank = self.policy.rank(sequence.request, number), number
        self.waiting.add(sequence)
        for sibling in siblings:
            sibling.rank = sequence.rank[0], next(self._numbers)
            (self.siblings.hold if self.holds_siblings_back else self.waiting.add)(sibling)
        self.deadlines.add(sequence)
        self.draining = False

    @abstractmethod
    def schedule(self) -> Batch:
        """Chooses what the next step runs, and gives those sequences their blocks."""

    def next_batch(self) -> Batch:
        """What the next step runs: what `schedule` chose, room for drafts if they pay, and the
        copies that all this led to.
        """
        batch = self.schedule()
        if not batch.scheduled:
            return batch
        if self.speculation is not None and not batch.preempted:
            budget = self.max_num_batched_tokens - batch.num_tokens
            scheduled = self.speculation.add_drafts(
                batch.scheduled, self.blocks, budget=budget, max_len=self.max_len
            )
            batch = replace(batch, scheduled=scheduled)
        return self.blocks.complete(batch)

    def admit(self, sequence: Sequence) -> None:
        """Moves a waiting sequence into the running set. It needs its blocks as well."""
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_rank)
        sequence.status = SequenceStatus.RUNNING

    def preempt(self, sequence: Sequence) -> None:
        """Takes a running sequence's blocks away; it waits again, by its old rank.

        Its tokens stay. Their KV is copied to the host, if there is room and it pays, and is
        computed again otherwise.
        """
        self.running.remove(sequence)
        if self.blocks.swap_out(sequence):
            sequence.status = SequenceStatus.SWAPPED
            self.num_swaps += 1
        else:
            self.blocks.release(sequence)
            sequence.status = SequenceStatus.PREEMPTED
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.add(sequence)
        self._queue_siblings(sequence)

    def advance(self, batch: Batch) -> None:
        """Notes that a batch is under way, so that the next one can be scheduled meanwhile.

        Its tokens count as computed and its samples as tokens, whose values are still pending. A
        sequence that is thereby as long as it may get takes part in no further step.
        """
        self._flights.begin(batch)
        for item in batch.scheduled:
            sequence = item.sequence
            full = item.samples and is_full(sequence, len(sequence), self.max_len)
            if full and sequence.status is SequenceStatus.RUNNING:
                self.leaving.append(sequence)
        if self.leaving:
            leaving = set(self.leaving)
            self.running = [s for s in self.running if s not in leaving]

    def commit(self, batch: Batch, result: StepResult) -> list[SequenceUpdate]:
        """Takes in what a step produced; sequences that have ended leave and free their blocks.

        Sequences that ended while the step was under way are passed over. Steps are committed in
        the order in which they were scheduled.
        """
        if len(result.outputs) != len(batch.scheduled):
            raise InvariantViolation(
                f"the executor returned {len(result.outputs)} outputs "
                f"for {len(batch.scheduled)} scheduled sequences"
            )
        self._land(batch, written=True)
        updates = [
            self._commit_one(item, output)
            for item, output in zip(batch.scheduled, result.outputs, strict=True)
            if item.sequence.status is not SequenceStatus.FINISHED
        ]
        self._sweep()
        return [u for u in updates if u.new_token_ids or u.finish_reason]

    def abandon(self, batch: Batch) -> None:
        """Takes note that a step under way is over and gave nothing."""
        self._land(batch, written=False)
        self._sweep()

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """Ends a sequence from outside, in whatever state it is; its blocks are free at once.

        If a step under way uses them, they are free when that step is done. Does nothing if the
        sequence has ended already.
        """
        if sequence.status is not SequenceStatus.FINISHED:
            self._end(sequence, reason)
            self._sweep()

    def expire(self, now: float) -> list[SequenceUpdate]:
        """Ends those who have never run though their deadline is past."""
        firsts = self.deadlines.pop_expired(now)
        expired = [s for first in firsts for s in family(first, self.siblings, self.waiting)]
        for sequence in expired:
            deadline = sequence.request.deadline
            sequence.error = f"still waiting for its first step at its deadline, {deadline:g} s"
            self._end(sequence, FinishReason.DEADLINE)
        return [SequenceUpdate(s, finish_reason=FinishReason.DEADLINE) for s in expired]

    def _slice(self, sequence: Sequence, num_tokens: int) -> ScheduledSequence:
        """The next so many tokens of a sequence, and what of them is a prompt is for others, too.

        (Generated tokens are given to others when the sequence lets go of them.)
        """
        item = ScheduledSequence.of(sequence, num_tokens)
        if item.num_tokens > 1 or item.start < sequence.num_prompt_tokens:
            self.blocks.promise(sequence, item.end)
        return item

    def _land(self, batch: Batch, *, written: bool) -> None:
        if batch not in self._flights:
            self.advance(batch)  # who runs one step after the other need not say so
        self._flights.end(batch, written=written)

    def _commit_one(self, item: ScheduledSequence, output: SequenceOutput) -> SequenceUpdate:
        sequence = item.sequence
        if output.error is not None:
            sequence.error = output.error
            # What it wrote is not to be trusted.
            self.blocks.shared.withdraw({sequence: item.start})
            self._end(sequence, FinishReason.ERROR)
            return SequenceUpdate(sequence, finish_reason=FinishReason.ERROR)
        sequence.prompt_logprobs.extend(output.prompt_logprobs)
        kept, reason = take_tokens(sequence, output.token_ids, self.max_len)
        # What stands behind a token that ends the sequence is nobody's any more.
        accepted = min(output.num_accepted, len(kept))
        if item.num_drafts:
            self._keep_drafts(sequence, len(output.draft_token_ids), accepted)
        if reason is not None:
            self._end(sequence, reason)
        elif kept:
            self._queue_siblings(sequence)
        logprobs, drafts = output.logprobs[: len(kept)], output.draft_token_ids
        return SequenceUpdate(sequence, kept, logprobs, reason, drafts, accepted)

    def _keep_drafts(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Drafts that were right are computed; the blocks of those that were not are given back."""
        sequence.num_computed += num_accepted
        if sequence.num_written != NEVER:
            sequence.num_written += num_accepted
        self.blocks.trim(sequence)
        if num_drafted and self.speculation is not None:
            self.speculation.note(sequence, num_drafted, num_accepted)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        if sequence.status is SequenceStatus.RUNNING:
            if sequence not in self.leaving:
                self.leaving.append(sequence)
        elif not self.siblings.remove(sequence):
            self.waiting.remove(sequence)
            self.blocks.release(sequence)  # what it has on the host, if it was swapped out
        sequence.status = SequenceStatus.FINISHED
        sequence.finish_reason = reason
        if self.speculation is not None:
            self.speculation.lengths.forget(sequence)
        self._queue_siblings(sequence)

    def _queue_siblings(self, parent: Sequence) -> None:
        for sibling in self.siblings.pop(parent):
            self.waiting.add(sibling)

    def _sweep(self) -> None:
        """Lets go of sequences that have ended, and of their blocks once no step uses them."""
        self.running = [s for s in self.running if s.status is SequenceStatus.RUNNING]
        for sequence in self.leaving:
            if is_gone(sequence):
                self.blocks.release(sequence)
        self.leaving = [s for s in self.leaving if not is_gone(s)]


def _rank(sequence: Sequence) -> tuple[float, int]:
    return sequence.rank
