"""Every scheduler in simulated time: strides, padding, swaps, deadlines, the record of it all."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.core import (
    Accept,
    Admission,
    Batch,
    ContinuousScheduler,
    DynamicScheduler,
    Priority,
    Refuse,
    Request,
    ScheduledSequence,
    ScheduleRecord,
    Sequence,
    ShortestFirst,
    StaticScheduler,
    Swap,
)
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival, ClosedLoop, Poisson, open_loop
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.executor import SimClock, SimExecutor
from minillm_serve.sim.lengths import Fixed, LogNormal, Uniform
from minillm_serve.sim.simulation import Simulation

COST = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"], overhead_s=1e-4)
KINDS = {
    "continuous": ContinuousScheduler,
    "priority": partial(ContinuousScheduler, policy=Priority(ageing=3)),
    "shortest": partial(ContinuousScheduler, policy=ShortestFirst()),
    "static": StaticScheduler,
    "static, 20 ms": partial(StaticScheduler, max_queue_delay=0.02),
    "dynamic": partial(DynamicScheduler, max_queue_delay=0.01),
}
streams = st.lists(
    st.builds(
        Arrival,
        time=st.integers(0, 90).map(lambda ms: ms / 1000),
        prompt_tokens=st.integers(1, 60),
        output_tokens=st.integers(1, 90),
    ),
    min_size=1,
    max_size=16,
).map(sorted)


def simulation(**options):
    return Simulation(COST, **{"num_blocks": 2_000, **options})


@settings(max_examples=60, deadline=None)
@given(
    streams,
    st.sampled_from(sorted(KINDS)),
    st.integers(8, 60),
    st.sampled_from([0, 30]),
    st.integers(1, 12),
    st.sampled_from([0.015, float("inf")]),
)
def test_striding_changes_nothing_under_any_scheduler(
    arrivals, kind, num_blocks, num_host_blocks, max_num_seqs, max_wait
):
    def run(stride):
        made = simulation(
            num_blocks=num_blocks, num_host_blocks=num_host_blocks, block_size=16,
            max_num_seqs=max_num_seqs, max_num_batched_tokens=max(64, max_num_seqs),
            scheduler=KINDS[kind], max_wait=max_wait, stride=stride,
            priority=lambda arrival: arrival.prompt_tokens % 3,
        )  # fmt: skip
        made.engine.debug_invariants = not stride
        made.engine.record = ScheduleRecord(made.engine.scheduler)
        return made.run(arrivals), made.engine.record

    (fast, quick), (slow, full) = run(True), run(False)
    assert len(fast) + fast.num_refused + fast.num_expired == len(arrivals)
    for name in ("num_refused", "num_expired", "num_preemptions"):
        assert getattr(fast, name) == getattr(slow, name)
    assert fast.arrivals.tolist() == slow.arrivals.tolist()
    for name in ("waiting", "ttft", "latency"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12)
    assert quick.spans() == full.spans()
    assert list(quick.num_idle) == list(full.num_idle)
    np.testing.assert_allclose(quick.ended, full.ended, rtol=1e-9)


def test_an_idle_row_costs_what_a_row_as_wide_as_the_batch_costs():
    arrivals = [Arrival(0.0, 10, 1), Arrival(0.0, 10, 3)]
    made = simulation(scheduler=StaticScheduler, max_num_seqs=2, stride=False)
    outcome = made.run(arrivals)
    prefill = COST.seconds(Work(2, 20, 2, 20, 2 * 55))
    padded = sum(COST.seconds(Work(2, 2, 2, 2 * width, 2 * width)) for width in (11, 12))
    assert outcome.latency[-1] == pytest.approx(prefill + padded)
    alone = simulation(max_num_seqs=2, stride=False).run(arrivals)
    assert alone.latency[-1] < outcome.latency[-1]


def test_a_static_batch_waits_for_the_last_of_its_crowd():
    arrivals = [Arrival(float(second), 10, 2) for second in range(3)]
    full = simulation(scheduler=StaticScheduler, max_num_seqs=3).run(arrivals)
    assert full.waiting.tolist() == pytest.approx([2.0, 1.0, 0.0])
    # Nobody makes the second batch full: it begins when the world has nobody left to send.
    rest = simulation(scheduler=StaticScheduler, max_num_seqs=2).run(arrivals)
    assert rest.waiting.tolist()[:2] == pytest.approx([1.0, 0.0])
    assert rest.waiting[2] == pytest.approx(0.0)


def test_a_delay_is_waited_for_to_the_moment():
    arrivals = [Arrival(0.0, 10, 2), Arrival(0.5, 10, 2), Arrival(9.0, 10, 2)]

    def waits(kind):
        made = simulation(scheduler=partial(kind, max_queue_delay=0.75), max_num_seqs=3)
        return made.run(arrivals).waiting.tolist()

    assert waits(DynamicScheduler) == pytest.approx([0.75, 0.25, 0.75])
    assert waits(StaticScheduler) == pytest.approx([1.25, 0.75, 0.75])


def test_a_closed_loop_of_fewer_users_than_slots_does_not_hang():
    loop = ClosedLoop(3, 0.05, Fixed(20), Uniform(5, 40), seed=1)
    left = 20

    def then(arrival, now):
        nonlocal left
        left -= 1
        return loop.after(arrival, now) if left > 0 else None

    outcome = simulation(scheduler=StaticScheduler, max_num_seqs=8).run(loop.start(), then=then)
    assert len(outcome) >= 20


def compared(rate):
    """Mean latency, throughput and slot utilisation of each scheduler on one trace."""
    arrivals = list(islice(open_loop(Poisson(rate), Fixed(64), LogNormal(100), seed=2), 200))
    told = {}
    for name in ("continuous", "dynamic", "static"):
        made = simulation(scheduler=KINDS[name], max_num_seqs=16)
        made.engine.record = ScheduleRecord(made.engine.scheduler)
        outcome = made.run(arrivals)
        assert len(outcome) == 200
        used = made.engine.record.slot_utilisation
        told[name] = (float(outcome.latency.mean()), outcome.throughput, used)
    return told


def test_with_few_users_dynamic_waits_less_than_static_and_continuous_not_at_all():
    told = compared(rate=10)
    assert told["continuous"][0] < told["dynamic"][0] < told["static"][0]


def test_with_many_users_continuous_fills_the_slots_that_fixed_batches_leave_empty():
    told = compared(rate=40)
    for name in ("dynamic", "static"):
        assert told["continuous"][1] > 2 * told[name][1]
        assert told["continuous"][2] > 2 * told[name][2]


def test_a_swap_takes_the_time_of_its_bytes():
    clock = SimClock()
    sequence = Sequence(Request(request_id="r", prompt_token_ids=(0,) * 5))
    item = ScheduledSequence.of(sequence, 5)
    swap_out, swap_in = Swap(sequence, ((0, 0), (1, 1))), Swap(sequence, ((2, 2),))
    executor = SimExecutor(COST, clock, block_size=16)
    executor.submit(Batch((item,), swap_out=(swap_out,), swap_in=(swap_in,)))
    kv_bytes = 3 * 16 * COST.model.kv_bytes_per_token(2)
    assert clock.now == pytest.approx(COST.seconds(Work.prefill(5)) + kv_bytes / 25e9)


def test_swaps_spare_the_arithmetic_where_the_bus_is_fast():
    def run(host_bytes_s):
        cost = CostModel(
            HARDWARE["H200 SXM"], MODELS["Llama-3-8B"], overhead_s=1e-4, host_bytes_s=host_bytes_s
        )
        made = Simulation(cost, num_blocks=150, num_host_blocks=4000, max_num_seqs=32)
        arrivals = islice(open_loop(Poisson(40), Uniform(16, 200), LogNormal(100)), 200)
        outcome = made.run(arrivals)
        return outcome, made.engine.scheduler

    (fast, swapping), (slow, computing) = run(1e12), run(1e6)
    assert swapping.num_swaps > 0
    assert computing.num_swaps == 0 < computing.num_preemptions
    assert fast.makespan < slow.makespan


@pytest.mark.parametrize("stride", [False, True])
def test_who_is_dropped_leaves_at_the_deadline_and_not_at_the_end_of_a_stride(stride):
    told = []
    made = simulation(max_num_seqs=1, max_wait=0.5, stride=stride)
    made.run(
        [Arrival(0.0, 10, 1000, user=1), Arrival(0.1, 10, 1000, user=2)],
        then=lambda arrival, now: told.append((arrival.user, now)),
    )
    step = COST.seconds(Work.decode(1, 1010))
    assert told[0] == (2, pytest.approx(0.6, abs=2 * step))
    assert told[1][1] > 2.0


def test_who_waits_too_long_is_dropped_and_who_finds_the_queue_full_is_refused():
    arrivals = [Arrival(0.0, 100, 400) for _ in range(10)]
    late = simulation(max_num_seqs=1, max_wait=0.5).run(arrivals)
    assert (len(late) + late.num_expired, late.num_refused) == (10, 0)
    assert late.num_expired > 5
    assert late.waiting.max() < 0.5
    full = simulation(max_num_seqs=1, max_num_waiting=4).run(arrivals)
    assert (len(full), full.num_refused) == (4, 6)


def test_who_is_refused_may_come_again_and_a_door_sees_whose_they_are():
    seen, knocks = [], []

    class Door(Admission):
        def admit(self, request, load):
            seen.append(request.cache_salt)
            return Refuse(retry_after=3.0) if load.num_waiting >= 4 else Accept()

    def again(arrival, refusal):
        knocks.append(arrival.user)
        when = arrival.time + refusal.retry_after
        return replace(arrival, time=when) if knocks.count(arrival.user) < 3 else None

    arrivals = [Arrival(0.0, 100, 400, user) for user in range(12)]
    made = simulation(max_num_seqs=1, admission=Door, tenant=lambda arrival: f"t{arrival.user}")
    outcome = made.run(arrivals, refused=again)
    assert set(seen) == {f"t{user}" for user in range(12)}
    assert len(outcome) + outcome.num_refused == 12
    assert len(outcome) > 4  # more than the queue held at first
    assert all(knocks.count(user) == 3 for user in set(range(12)) - set(outcome.users))


@pytest.mark.parametrize("stride", [False, True])
def test_the_pace_is_that_of_all_steps_strides_included(stride):
    made = simulation(stride=stride)
    outcome = made.run([Arrival(0.0, 10, 300)])
    seconds = outcome.latency[0]
    assert made.engine.pace.tokens_per_second == pytest.approx((10 + 299) / seconds, rel=0.05)


def test_a_scheduler_that_does_not_say_that_it_is_steady_is_asked_at_every_step():
    class Counting(ContinuousScheduler):
        is_steady = False

        def schedule(self):
            self.calls = getattr(self, "calls", 0) + 1
            return super().schedule()

    made = simulation(scheduler=Counting)
    made.run([Arrival(0.0, 10, 50)])
    assert made.engine.scheduler.calls == 50
