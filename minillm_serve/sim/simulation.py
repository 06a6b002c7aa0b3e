"""Serving at any scale, without a GPU: the real engine over a stopwatch.

    cost = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"])
    simulation = Simulation(cost, num_blocks=20_000)
    chat = open_loop(Poisson(rate=4.0), Uniform(16, 512), LogNormal(200))
    outcome = simulation.run(islice(chat, 10_000))

Scheduler, block manager and engine are the ones that serve real models; only the executor and the
clock are others. Between two events (somebody comes, somebody ends, a block is missing) it strides
over all decode steps at once, with the same result.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count

from minillm_serve.core import (
    Admission,
    AdmissionPolicy,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    DraftLengths,
    EngineCore,
    FinishReason,
    MakeScheduler,
    Request,
    RequestMetrics,
    RequestRefused,
    SamplingParams,
    Speculation,
    StepRecord,
    SwapSpace,
)
from minillm_serve.core.coasting import coast, quiet_steps
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.executor import TOKEN, SimClock, SimExecutor
from minillm_serve.sim.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLimit(Admission):
    """A door that looks at lengths alone: simulated prompts have no ids worth checking."""

    def check(self, request: Request) -> None:
        """Raises RequestRefused for a prompt that leaves no room for a token."""
        length = len(request.prompt_token_ids)
        if length >= self.max_len:
            raise RequestRefused(
                f"a prompt of {length} tokens leaves no room for one more: at most {self.max_len}"
            )


class Simulation:
    """An engine in simulated time.

    Args:
        cost: prices steps.
        num_blocks: KV blocks in the pool.
        block_size: tokens a block (P).
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: the token budget of a step.
        max_model_len: most tokens of a sequence; by default all that the pool holds.
        num_host_blocks: blocks of host memory, to swap out to where that costs less than computing
            again.
        scheduler: a `Scheduler` class, or `partial(StaticScheduler, max_queue_delay=1.0)`.
        draft_lengths: how many drafts each sequence gets: `FixedLengths(3)`, say, or
            `AdaptiveLengths(5, step_costs(cost, context=500))`. None speculates not at all.
        acceptance: probability that a draft is kept, if all before it were.
        draft_cost: what a pass of the drafter takes, as a share of a step; see `SimExecutor`.
        max_num_waiting: newcomers are refused while so many wait.
        admission: another door, built with max_model_len, pool_tokens and vocab_size; it then
            decides about `max_num_waiting`, too.
        max_wait: seconds after which who has not begun is dropped.
        priority: gives each request its priority, for policies that ask.
        tenant: gives each request its `cache_salt`, for doors that ask.
        on_step: called with the record of every step. Steps are then run one by one.
        stride: stride over quiet steps (same results, much faster).
    """

    def __init__(
        self,
        cost: CostModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 2048,
        max_model_len: int | None = None,
        num_host_blocks: int = 0,
        scheduler: MakeScheduler = ContinuousScheduler,
        draft_lengths: DraftLengths | None = None,
        acceptance: float = 0.0,
        draft_cost: float = 0.0,
        max_num_waiting: int | None = None,
        admission: Callable[..., AdmissionPolicy] | None = None,
        max_wait: float = math.inf,
        priority: Callable[[Arrival], int] = lambda arrival: 0,
        tenant: Callable[[Arrival], str | None] = lambda arrival: None,
        on_step: Callable[[StepRecord], None] | None = None,
        stride: bool = True,
    ) -> None:
        pays = cost.recovery(block_size).swap_is_cheaper
        space = SwapSpace(num_host_blocks, pays) if num_host_blocks else None
        blocks = BlockManager(BlockPool(num_blocks), block_size, space)
        limit = (admission or partial(LengthLimit, max_num_waiting=max_num_waiting))(
            max_model_len=max_model_len or blocks.capacity,
            pool_tokens=blocks.capacity,
            vocab_size=TOKEN + 1,
        )
        self.cost, self.clock = cost, SimClock()
        self.max_wait, self.priority, self.tenant = max_wait, priority, tenant
        self.stride = stride and on_step is None
        self._observer = on_step
        self._was_quiet = False
        made = scheduler(
            blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_len=limit.max_len,
        )
        if draft_lengths is not None:
            made.speculation = Speculation(draft_lengths)
        self.engine = EngineCore(
            made,
            SimExecutor(cost, self.clock, block_size, acceptance=acceptance, draft_cost=draft_cost),
            limit,
            clock=self.clock,
            on_step=self._note,
        )
        self._numbers = count()

    def run(
        self,
        arrivals: Iterable[Arrival],
        *,
        then: Callable[[Arrival, float], Arrival | None] | None = None,
        refused: Callable[[Arrival, RequestRefused], Arrival | None] = lambda arrival, why: None,
    ) -> Outcome:
        """Serves everybody to the end.

        Args:
            arrivals: in order of time.
            then: asked at each end for the same user's next request, given the time: a closed loop
                (`ClosedLoop.after`). It must not lie in the past.
            refused: asked at each refusal for the same request's next try; without one, the
                request counts as refused.

        Returns:
            What became of them, in the order in which they ended.
        """
        outcome, world = Outcome(), _World(arrivals)
        inside: dict[str, tuple[Arrival, RequestMetrics]] = {}
        while self.engine.has_unfinished or world.next_time is not None:
            self._pause(world.next_time)
            came = world.until(self.clock.now)
            for arrival in came:
                refusal = self._let_in(arrival, inside)
                again = refused(arrival, refusal) if refusal is not None else None
                if again is not None:
                    world.add(again)
                else:
                    outcome.num_refused += refusal is not None
            if came or not self._stride_on(world.next_time, inside):
                for arrival in self._step(inside, outcome):
                    following = then(arrival, self.clock.now) if then is not None else None
                    if following is not None:
                        world.add(following)
        return outcome

    def _pause(self, next_time: float | None) -> None:
        """Lets time go by until there is something to do."""
        until = self.engine.idle_until
        if until is None:
            return
        until = until if next_time is None else min(until, next_time)
        if until == math.inf:
            self.engine.flush()
        else:
            self.clock.wait_until(until)

    def _let_in(
        self, arrival: Arrival, inside: dict[str, tuple[Arrival, RequestMetrics]]
    ) -> RequestRefused | None:
        name = str(next(self._numbers))
        request = Request(
            request_id=name,
            prompt_token_ids=_prompt(arrival.prompt_tokens),
            params=_params(arrival.output_tokens),
            arrival_time=arrival.time,
            priority=self.priority(arrival),
            deadline=None if self.max_wait == math.inf else arrival.time + self.max_wait,
            cache_salt=self.tenant(arrival),
        )
        try:
            inside[name] = arrival, self.engine.add_request(request)
        except RequestRefused as refusal:
            return refusal
        return None

    def _step(
        self, inside: dict[str, tuple[Arrival, RequestMetrics]], outcome: Outcome
    ) -> list[Arrival]:
        """Runs one step; gives the requests that ended with it."""
        ended = []
        for update in self.engine.step():
            if update.finish_reason is not None:
                arrival, metrics = inside.pop(update.request_id)
                if update.finish_reason is FinishReason.DEADLINE:
                    outcome.num_expired += 1
                else:
                    outcome.add(arrival, metrics)
                ended.append(arrival)
        return ended

    def _stride_on(
        self, until: float | None, inside: dict[str, tuple[Arrival, RequestMetrics]]
    ) -> bool:
        """Takes all quiet steps that begin before `until`, or the next deadline, at once.

        False if there is none.
        """
        if not self.stride or not self._was_quiet:
            return False
        scheduler = self.engine.scheduler
        steps = quiet_steps(scheduler)
        if steps < 1 or scheduler.deadlines.next <= self.clock.now:
            return False
        lengths = list(map(len, scheduler.running))
        batch, num_tokens = len(lengths), sum(lengths)
        first = Work(batch, batch, batch, num_tokens, num_tokens)
        first = first.padded(scheduler.num_idle, max(lengths))
        until = min(math.inf if until is None else until, scheduler.deadlines.next)
        if until < math.inf:
            steps = min(steps, self.cost.steps_within(first, until - self.clock.now))
        coast(scheduler, steps, TOKEN)
        if self.engine.record is not None:
            self.engine.record.repeat(self.cost.ends_of_run(first, steps, self.clock.now))
        began = self.clock.now
        self.clock.advance(self.cost.seconds_of_run(first, steps))
        self.engine.pace.note(began, self.clock.now, steps * batch)
        for sequence in scheduler.running:
            inside[sequence.request.request_id][1].num_output_tokens += steps
        return True

    def _note(self, record: StepRecord) -> None:
        # One token each, nobody ended and nobody was thrown out. And nobody was let in: with room
        # and budget to spare, whoever waits is waiting for one of these to change.
        self._was_quiet = (
            record.num_running == record.num_scheduled == record.num_tokens == record.num_sampled
            and not record.finished
            and not record.num_preempted
        )
        if self._observer is not None:
            self._observer(record)


class _World:
    """Everybody who is still to come, in order of time."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        self._stream = iter(arrivals)
        self._next = next(self._stream, None)
        self._added: list[Arrival] = []  # a heap

    @property
    def next_time(self) -> float | None:
        """When the next one comes; None if nobody does."""
        times = [a.time for a in (self._next, *self._added[:1]) if a is not None]
        return min(times, default=None)

    def add(self, arrival: Arrival) -> None:
        """Somebody who was not in the stream."""
        heapq.heappush(self._added, arrival)

    def until(self, now: float) -> list[Arrival]:
        """Takes out all who have come by now.

        Raises:
            ValueError: the stream is not in order of time.
        """
        came = []
        while self._next is not None and self._next.time <= now:
            came.append(self._next)
            following = next(self._stream, None)
            if following is not None and following.time < self._next.time:
                raise ValueError(
                    f"arrivals are not in order: {following.time} s after {self._next.time} s"
                )
            self._next = following
        while self._added and self._added[0].time <= now:
            came.append(heapq.heappop(self._added))
        return sorted(came, key=lambda arrival: arrival.time)  # else the shortest would go first


@lru_cache(maxsize=4096)
def _prompt(tokens: int) -> tuple[int, ...]:
    return (TOKEN,) * tokens


@lru_cache(maxsize=4096)
def _params(output_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)
