"""A random crowd against every scheduler and policy, with little memory of either kind."""

from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from minillm_serve.core import (
    POLICIES,
    ContinuousScheduler,
    DynamicScheduler,
    FinishReason,
    Overloaded,
    Priority,
    RequestRefused,
    StaticScheduler,
    SwapSpace,
)
from minillm_serve.core.invariants import check_idle, check_invariants
from minillm_serve.core.record import ScheduleRecord
from tests.core.deferred import DeferredExecutor
from tests.core.guessing import speculations
from tests.core.machine import STEPS, CountingMachine, run_machine
from tests.core.oracle import VOCAB, expected_tokens, make_engine, nothing, request


class CrowdMachine(CountingMachine):
    """Requests come with priorities and deadlines, leave at any moment, and are preempted.

    The clock goes on by 1 where the machine says so, and never by itself.
    """

    @initialize(
        num_blocks=st.integers(2, 12),
        num_host_blocks=st.integers(0, 10),
        block_size=st.sampled_from([1, 2, 4, 5]),
        seqs=st.integers(1, 5),
        budget=st.integers(1, 20),
        kind=st.sampled_from([ContinuousScheduler] * 3 + [StaticScheduler, DynamicScheduler]),
        policy=st.sampled_from([*(make() for make in POLICIES.values()), Priority(ageing=3)]),
        overlapped=st.booleans(),
        limit=st.sampled_from([None, 1, 4]),
        eos=st.sets(st.integers(0, VOCAB - 1), max_size=6),
        speculation=speculations,
        choices=st.randoms(use_true_random=False),
    )
    def start(
        self,
        num_blocks,
        num_host_blocks,
        block_size,
        seqs,
        budget,
        kind,
        policy,
        overlapped,
        limit,
        eos,
        speculation,
        choices,
    ):
        self.now = 0.0
        guess = speculation.get("guess", nothing)
        self.engine = make_engine(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            executor=DeferredExecutor(num_blocks, block_size, num_host_blocks, guess),
            scheduler=partial(kind, policy=policy),
            lengths=speculation.get("lengths"),
            async_scheduling=overlapped and not speculation,
            limits={"max_num_waiting": limit},
            eos_token_ids=eos,
            clock=lambda: self.now,
        )
        if num_host_blocks:
            # Both kinds of preemption, mixed at random.
            space = SwapSpace(num_host_blocks, lambda tokens, blocks: choices.random() < 0.7)
            self.engine.scheduler.blocks.swap_space = space
        self.engine.record = ScheduleRecord(self.engine.scheduler)
        self.eos, self.asked, self.got, self.names = eos, {}, {}, 0

    @rule(
        prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=24),
        max_tokens=st.one_of(st.none(), st.integers(1, 20)),
        priority=st.integers(-2, 2),
        patience=st.one_of(st.none(), st.integers(0, 9)),
    )
    def arrive(self, prompt, max_tokens, priority, patience):
        self.names += 1
        name = f"r{self.names}"
        room = self.engine.admission.max_len - len(prompt)
        deadline = None if patience is None else self.now + patience
        waiting, limit = len(self.engine.scheduler.waiting), self.engine.admission.max_num_waiting
        asked = request(name, prompt, max_tokens, priority=priority, deadline=deadline)
        try:
            self.engine.add_request(asked)
        except Overloaded:
            assert limit is not None
            assert waiting >= limit
            return
        except RequestRefused:
            assert room < 1
            return
        count = room if max_tokens is None else min(room, max_tokens)
        tokens = expected_tokens(prompt, count)
        ends = [i + 1 for i, token in enumerate(tokens) if token in self.eos]
        self.asked[name] = tokens[: min(ends, default=count)], deadline
        self.got[name] = []

    @precondition(lambda self: self.engine.has_unfinished)
    @rule(times=st.integers(1, 6), seconds=st.sampled_from([0, 0, 1, 5]))
    def step(self, times, seconds):
        for _ in range(times):
            self.take_step()
        self.now += seconds

    def take_step(self):
        for update in self.engine.step():
            name = update.request_id
            self.got[name] += update.new_token_ids
            if update.finish_reason is FinishReason.DEADLINE:
                assert self.got.pop(name) == []
                assert self.asked[name][1] <= self.now
            elif update.finish_reason:
                assert self.got.pop(name) == self.asked[name][0]

    @precondition(lambda self: self.got)
    @rule(data=st.data())
    def leave(self, data):
        name = data.draw(st.sampled_from(sorted(self.got)))
        assert self.engine.abort(name)
        tokens = self.got.pop(name)
        assert tokens == self.asked[name][0][: len(tokens)]
        check_invariants(self.engine.scheduler)
        if not self.engine.has_unfinished:
            check_idle(self.engine.scheduler)

    def teardown(self):
        if hasattr(self, "engine"):
            for _ in range(10_000):
                if not self.engine.has_unfinished:
                    break
                self.engine.flush()
                self.take_step()
            assert not self.got
            check_idle(self.engine.scheduler)
            self.check_record()

    def check_record(self):
        """Span by span it is what the executor was given, cell by cell no slot is used twice."""
        record, executor = self.engine.record, self.engine.executor
        steps = [[] for _ in range(len(record))]
        for span in record.spans():
            for step in range(span.first_step, span.end_step):
                start = span.start + (step - span.first_step) * span.num_tokens
                blocks = span.blocks_in(step, record.block_size)
                steps[step].append((start, start + span.num_tokens, blocks, span.slot))
        given = [self.slices(step) for step in executor.submitted]
        assert [sorted(row[:3] for row in rows) for rows in steps] == given
        assert all(len({row[3] for row in rows}) == len(rows) for rows in steps)
        assert all(row[3] < record.num_slots for rows in steps for row in rows)

    def slices(self, step):
        pairs = zip(step.slices, step.tables, strict=True)
        return sorted((start, end, len(table)) for (start, end, _), table in pairs)


def test_a_random_crowd_is_served_right_by_every_scheduler_through_10_000_steps_b28_b31_b34():
    assert run_machine(CrowdMachine) >= STEPS
