"""The loop: schedule, execute, commit."""

import math
import random
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from minillm_serve.core.admission import AdmissionPolicy, Queue, Refuse
from minillm_serve.core.batch import Batch, SequenceUpdate
from minillm_serve.core.errors import EngineStalled, Overloaded, RequestRefused
from minillm_serve.core.executor import Executor, StepHandle
from minillm_serve.core.invariants import check_batch, check_idle, check_invariants
from minillm_serve.core.load import Load, Pace
from minillm_serve.core.metrics import RequestMetrics, StepRecord
from minillm_serve.core.record import ScheduleRecord
from minillm_serve.core.request import FinishReason, Request, Sequence, SequenceStatus
from minillm_serve.core.request_book import RequestBook
from minillm_serve.core.scheduler import Scheduler
from minillm_serve.core.sharing import PrefixStats
from minillm_serve.core.snapshot import snapshot, with_drafts, without_empty_room
from minillm_serve.core.speculation import SpecStats


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step under way."""

    batch: Batch
    handle: StepHandle
    record: StepRecord
    schedule: ScheduleRecord | None  # where it is noted, and
    number: int  # as which step


class EngineCore:
    """Serves requests, one step at a time.

    It never knows whether the executor below it is a GPU, a CPU or a stopwatch.

        plain    schedule 1 | run 1 | commit 1 | schedule 2 | run 2 | commit 2 | ...
        async    schedule 1 | run 1            | run 2                 | run 3 ...
                            | schedule 2       | commit 1, schedule 3  | commit 2, schedule 4

    With `async_scheduling` the executor never waits for us, as long as a step takes longer to run
    than to schedule. The price: what step n sampled is unknown when step n+1 is scheduled. Ends by
    length are known all the same. A sequence that sampled its stop token takes part in one step
    too many, whose token is dropped; so does one that is aborted. A newcomer waits for the step
    that was scheduled before it came. Where memory is tight, we wait for the step under way
    rather than preempt a sequence for blocks that it may be about to give back.

    Args:
        scheduler: decides what runs.
        executor: runs it.
        admission: decides who is let in, and who has to come again later.
        eos_token_ids: ids that end a sequence, unless its request ignores them.
        seed: seeds the draws of requests that bring no seed of their own.
        clock: returns the time in seconds; replaced by a simulated one in simulations.
        on_step: called with a `StepRecord` after every step.
        async_scheduling: schedule a step while the one before it runs. The tokens are the same.
        debug_invariants: check the bookkeeping around every step.

    Attributes:
        metrics: of the requests that are in the engine.
        record: notes which sequence computed what in which step, if there is one.
        pace: tokens a second, of late.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        admission: AdmissionPolicy,
        *,
        eos_token_ids: Collection[int] = (),
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[StepRecord], None] | None = None,
        async_scheduling: bool = False,
        debug_invariants: bool = False,
    ) -> None:
        self.scheduler = scheduler
        scheduler.clock = clock
        self.executor = executor
        self.admission = admission
        self.eos_token_ids = frozenset(eos_token_ids)
        self.clock = clock
        self.on_step = on_step
        self.async_scheduling = async_scheduling
        self.debug_invariants = debug_invariants
        self.pace = Pace()
        self._book = RequestBook(admission.max_len, admission.leave)
        self.metrics = self._book.metrics
        self.record: ScheduleRecord | None = None
        self._flights: deque[_Flight] = deque()  # the oldest first
        self._seeds = random.Random(seed)

    @property
    def has_unfinished(self) -> bool:
        """Whether another step would do anything."""
        return self.scheduler.num_unfinished > 0

    @property
    def idle_until(self) -> float | None:
        """When to call `step` again if nobody comes before; None: now.

        Infinity: when somebody comes. (Or, if the scheduler waits for others on purpose, after
        `flush`.)
        """
        if not self.has_unfinished:
            return math.inf
        wakeup = self.scheduler.next_wakeup
        if wakeup is None or self._flights:
            return None
        return min(wakeup, self.scheduler.deadlines.next)

    def flush(self) -> None:
        """Says that nobody else is coming, so that no batch waits to be filled."""
        self.scheduler.flush()

    @property
    def load(self) -> Load:
        """How busy it is at this moment."""
        return self._load(self.clock())

    @property
    def prefix_stats(self) -> PrefixStats:
        """What the prefix cache holds, and what it was good for since the last reset."""
        return self.scheduler.blocks.stats

    @property
    def spec_stats(self) -> SpecStats:
        """Drafts so far, and how many of them were right."""
        speculation = self.scheduler.speculation
        return speculation.stats if speculation is not None else SpecStats()

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached blocks, and begins to count anew; False while anybody is served."""
        if self.has_unfinished:
            return False
        self.scheduler.blocks.shared.clear()
        return True

    def add_request(self, request: Request) -> RequestMetrics:
        """Queues a request.

        Returns:
            Its metrics, which fill up while it is served and stay valid afterwards.

        Raises:
            RequestRefused: it can never be served, or its id is in use. Nothing has changed.
            Overloaded: there is no room for it now, says the door. Nothing has changed.
        """
        if request.request_id in self._book:
            raise RequestRefused(
                f"request_id={request.request_id!r} is in use: wait until that request has ended "
                "or choose another id"
            )
        self.admission.check(request)
        now = self.clock()
        request = self._let_in(request, self._load(now))
        seed = self._seeds.getrandbits(64)
        arrival = now if request.arrival_time is None else request.arrival_time
        options = {"eos_token_ids": self.eos_token_ids, "seed": seed, "arrival_time": arrival}
        self.scheduler.add(*self._book.open(request, **options))
        return self.metrics[request.request_id]

    def _load(self, now: float) -> Load:
        scheduler = self.scheduler
        return Load(
            now=now,
            num_running=len(scheduler.running),
            num_waiting=scheduler.num_waiting,
            waiting_tokens=self._book.waiting_tokens,
            max_num_seqs=scheduler.max_num_seqs,
            max_len=self.admission.max_len,
            kv_usage=scheduler.blocks.num_used / scheduler.blocks.pool.num_blocks,
            tokens_per_second=self.pace.tokens_per_second,
        )

    def _let_in(self, request: Request, load: Load) -> Request:
        """Asks the door about this moment; gives the request as it may come in."""
        match self.admission.admit(request, load):
            case Refuse(retry_after, why):
                raise Overloaded(
                    f"request {request.request_id!r} is refused, since {why}: send it again in "
                    f"{retry_after:.3g} s",
                    retry_after,
                )
            case Queue(at_most):
                latest = load.now + at_most
                own = math.inf if request.deadline is None else request.deadline
                return replace(request, deadline=min(latest, own))
        return request

    def abort(self, request_id: str) -> bool:
        """Ends a request because its user has left; see `finish`."""
        return self.finish(request_id, FinishReason.ABORT)

    def finish(self, request_id: str, reason: FinishReason, index: int | None = None) -> bool:
        """Ends a request now, wherever it stands; its blocks are free at once.

        (Or as soon as a step under way that uses them is done; with nobody else to serve, that is
        waited for.)

        Args:
            request_id: whose.
            reason: why.
            index: ends one of its answers alone.

        Returns:
            False if no such request is in the engine (it has ended already, say).
        """
        ending = self._book.unfinished(request_id, index)
        self._end(ending, reason)
        self._settle()
        return bool(ending)

    def step(self) -> list[SequenceUpdate]:
        """Runs one step and tells which sequences got tokens or ended.

        (Or none, if the scheduler waits on purpose; see `idle_until`. And if anybody's deadline
        has passed, that is told first, before another step is run.)

        Raises:
            EngineStalled: sequences are unfinished but none could be scheduled.
            Exception: whatever the executor raised; the requests of that step, and those that
                share what it was to write, have then ended with an error, all others are
                untouched, and the engine can go on.
        """
        if not self.has_unfinished:
            return []
        try:
            # A step may fail, and whatever is to be told besides would be lost.
            updates = self._expire() or self._run()
        finally:
            self._settle()
        if self.debug_invariants:
            (check_invariants if self.has_unfinished else check_idle)(self.scheduler)
        return updates

    def _run(self) -> list[SequenceUpdate]:
        most = 2 if self.async_scheduling else 1
        while len(self._flights) < most and self._launch():
            pass
        if self._flights:
            return self._land()
        if self.has_unfinished and self.scheduler.next_wakeup is None:
            raise EngineStalled(
                f"{self.scheduler.num_unfinished} sequences are unfinished and "
                f"{type(self.scheduler).__name__} scheduled none of them"
            )
        return []

    def _launch(self) -> bool:
        """Schedules a step and starts it; False if there is nothing to start now."""
        if self._flights and self.scheduler.is_tight:
            return False
        began = self.clock()
        batch = self.scheduler.next_batch()
        if not batch.scheduled:
            return False
        if self.debug_invariants:
            check_batch(self.scheduler, batch)
        record = snapshot(self.scheduler, batch, began)
        self._book.note_start(batch, began)
        try:
            handle = self.executor.submit(batch)
        except BaseException as error:
            self._fail(batch, error)
            raise
        noted = self.record.begin(batch, record) if self.record is not None else 0
        self.scheduler.advance(batch)
        self._flights.append(_Flight(batch, handle, record, self.record, noted))
        return True

    def _land(self) -> list[SequenceUpdate]:
        """Waits for the oldest step under way and takes in its results."""
        flight = self._flights.popleft()
        try:
            result = flight.handle.wait()
        except BaseException as error:
            concerned = self._fail(flight.batch, error)
            self.scheduler.abandon(flight.batch)
            if not concerned and isinstance(error, Exception):
                return []  # all of its sequences had ended before
            raise
        updates = self.scheduler.commit(flight.batch, result)
        ended = self.clock()
        self.pace.note(flight.record.began, ended, flight.record.num_tokens)
        verified = with_drafts(flight.batch, result)
        if flight.schedule is not None:
            flight.schedule.end(flight.number, ended, verified)
        for update in updates:
            self._book.note(update, ended)
        if self.on_step is not None:
            sampled = sum(len(u.new_token_ids) for u in updates)
            finished = tuple(u.request_id for u in updates if u.finish_reason)
            record = without_empty_room(flight.record, flight.batch, verified)
            self.on_step(replace(record, ended=ended, num_sampled=sampled, finished=finished))
        return updates

    def _expire(self) -> list[SequenceUpdate]:
        """Ends whoever has waited for the first step beyond the deadline."""
        if self.scheduler.deadlines.next == math.inf:
            return []
        now = self.clock()
        updates = self.scheduler.expire(now)
        for update in updates:
            self._book.note(update, now)
        return updates

    def _settle(self) -> None:
        """With nobody left to serve, waits for what still runs: an idle engine holds nothing."""
        while self._flights and not self.has_unfinished:
            self._land()

    def _fail(self, batch: Batch, error: BaseException) -> bool:
        """Ends the requests of a failed step, whose KV may be half written; False without any.

        So do those who have been given what the step should have written.
        """
        misled = self.scheduler.blocks.shared.withdraw(batch.writes)
        alive = [s for s in (*batch.concerned, *misled) if s.status is not SequenceStatus.FINISHED]
        for name in dict.fromkeys(s.request.request_id for s in alive):
            self._end(self._book.unfinished(name), FinishReason.ERROR, error)
        return bool(alive)

    def _end(
        self, sequences: list[Sequence], reason: FinishReason, error: BaseException | None = None
    ) -> None:
        now = self.clock()
        for sequence in reversed(sequences):  # number 0 last, so that nobody is let in after it
            if error is not None:
                sequence.error = f"{type(error).__name__}: {error}"
            self.scheduler.finish(sequence, reason)
            self._book.close(sequence, now)
