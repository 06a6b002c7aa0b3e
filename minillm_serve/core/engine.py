"""The loop: schedule, execute, commit."""

import random
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from minillm_serve.core.admission import Admission
from minillm_serve.core.batch import Batch, SequenceUpdate, StepResult
from minillm_serve.core.errors import EngineStalled, RequestRefused
from minillm_serve.core.executor import Executor
from minillm_serve.core.invariants import check_batch, check_idle, check_invariants
from minillm_serve.core.metrics import RequestMetrics, StepRecord
from minillm_serve.core.request import FinishReason, Request, Sequence
from minillm_serve.core.scheduler import Scheduler


class EngineCore:
    """Serves requests, one step at a time.

    It never knows whether the executor below it is a GPU, a CPU or a stopwatch.

    Args:
        scheduler: decides what runs.
        executor: runs it.
        admission: decides what is let in.
        eos_token_ids: ids that end a sequence, unless its request ignores them.
        seed: seeds the draws of requests that bring no seed of their own.
        clock: returns the time in seconds; replaced by a simulated one in simulations.
        on_step: called with a `StepRecord` after every step.
        debug_invariants: check the bookkeeping around every step.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        admission: Admission,
        *,
        eos_token_ids: Collection[int] = (),
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[StepRecord], None] | None = None,
        debug_invariants: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.admission = admission
        self.eos_token_ids = frozenset(eos_token_ids)
        self.clock = clock
        self.on_step = on_step
        self.debug_invariants = debug_invariants
        self.metrics: dict[str, RequestMetrics] = {}  # of the requests that are in the engine
        self._sequences: dict[str, Sequence] = {}
        self._seeds = random.Random(seed)

    @property
    def has_unfinished(self) -> bool:
        """Whether another step would do anything."""
        return self.scheduler.num_unfinished > 0

    def add_request(self, request: Request) -> RequestMetrics:
        """Queues a request.

        Returns:
            Its metrics, which fill up while it is served and stay valid afterwards.

        Raises:
            RequestRefused: it can never be served, or its id is in use. Nothing has changed.
        """
        if request.request_id in self._sequences:
            raise RequestRefused(
                f"request_id={request.request_id!r} is in use: wait until that request has ended "
                "or choose another id"
            )
        self.admission.check(request)
        seed = self._seeds.getrandbits(64)
        sequence = Sequence(request, eos_token_ids=self.eos_token_ids, seed=seed)
        arrival = self.clock() if request.arrival_time is None else request.arrival_time
        self._sequences[request.request_id] = sequence
        self.metrics[request.request_id] = RequestMetrics(arrival)
        self.scheduler.add(sequence)
        return self.metrics[request.request_id]

    def abort(self, request_id: str) -> bool:
        """Ends a request because its user has left; see `finish`."""
        return self.finish(request_id, FinishReason.ABORT)

    def finish(self, request_id: str, reason: FinishReason) -> bool:
        """Ends a request now, wherever it stands; its blocks are free at once.

        Returns:
            False if no such request is in the engine (it has ended already, say).
        """
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        self.scheduler.finish(sequence, reason)
        self._forget(sequence, self.clock())
        return True

    def step(self) -> list[SequenceUpdate]:
        """Runs one step and tells which sequences got tokens or ended.

        Raises:
            EngineStalled: sequences are unfinished but none could be scheduled.
            Exception: whatever the executor raised; the sequences of that step have then ended
                with an error, all others are untouched, and the engine can go on.
        """
        if not self.has_unfinished:
            return []
        began = self.clock()
        batch = self.scheduler.schedule()
        if not batch.scheduled:
            raise EngineStalled(
                f"{self.scheduler.num_unfinished} sequences are unfinished and "
                f"{type(self.scheduler).__name__} scheduled none of them"
            )
        if self.debug_invariants:
            check_batch(self.scheduler, batch)
        record = self._snapshot(batch, began)
        result = self._execute(batch)
        updates = self.scheduler.commit(batch, result)
        ended = self.clock()
        self._note(batch, updates, began, ended)
        if self.on_step is not None:
            sampled = sum(len(u.new_token_ids) for u in updates)
            finished = tuple(u.request_id for u in updates if u.finish_reason)
            self.on_step(replace(record, ended=ended, num_sampled=sampled, finished=finished))
        if self.debug_invariants:
            (check_invariants if self.has_unfinished else check_idle)(self.scheduler)
        return updates

    def _execute(self, batch: Batch) -> StepResult:
        try:
            return self.executor.submit(batch).wait()
        except BaseException as error:
            # The KV of these sequences may be half written. They end; the engine stays usable.
            for item in batch.scheduled:
                item.sequence.error = f"{type(error).__name__}: {error}"
                self.scheduler.finish(item.sequence, FinishReason.ERROR)
                self._forget(item.sequence, self.clock())
            raise

    def _note(
        self, batch: Batch, updates: list[SequenceUpdate], began: float, ended: float
    ) -> None:
        for item in batch.scheduled:
            metrics = self.metrics.get(item.sequence.request.request_id)
            if metrics is not None and metrics.first_scheduled_time is None:
                metrics.first_scheduled_time = began
        for update in updates:
            metrics = self.metrics[update.request_id]
            if update.new_token_ids:
                if metrics.first_token_time is None:
                    metrics.first_token_time = ended
                metrics.last_token_time = ended
                metrics.num_output_tokens += len(update.new_token_ids)
            if update.finish_reason:
                self._forget(update.sequence, ended)

    def _forget(self, sequence: Sequence, now: float) -> None:
        """Drops the engine's own record of a request that has ended."""
        del self._sequences[sequence.request.request_id]
        metrics = self.metrics.pop(sequence.request.request_id)
        metrics.finished_time = now
        metrics.num_preemptions = sequence.num_preemptions

    def _snapshot(self, batch: Batch, began: float) -> StepRecord:
        """The step as it is about to run: what it holds is known before, what it gave after."""
        running, pool = self.scheduler.running, self.scheduler.blocks.pool
        return StepRecord(
            began=began,
            ended=began,
            num_scheduled=len(batch.scheduled),
            num_tokens=batch.num_tokens,
            num_sampled=0,
            num_running=len(running),
            num_waiting=len(self.scheduler.waiting),
            num_preempted=len(batch.preempted),
            blocks_used=pool.num_blocks - pool.num_free,
            tokens_stored=sum(s.num_computed for s in running) + batch.num_tokens,
        )
