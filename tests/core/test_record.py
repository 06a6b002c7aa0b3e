"""The schedule record: bars, cells, idle slots, and the file for a trace viewer."""

import json
from functools import partial
from itertools import pairwise

import pytest

from minillm_serve.core import (
    ContinuousScheduler,
    ScheduleRecord,
    Span,
    StaticScheduler,
    chrome_trace,
)
from tests.core.deferred import DeferredExecutor
from tests.core.oracle import make_engine, request, run


class Ticks:
    """A clock that goes on by 1 whenever it is read."""

    def __init__(self):
        self.now = -1.0

    def __call__(self):
        self.now += 1.0
        return self.now


def recorded(kind=ContinuousScheduler, asked=(("a", 2, 2), ("b", 2, 5), ("c", 2, 3)), **options):
    """Serves requests (name, prompt length, output length), all there from the start."""
    options = {"max_num_seqs": 2, "clock": Ticks(), **options}
    engine = make_engine(scheduler=kind, **options)
    engine.record = ScheduleRecord(engine.scheduler)
    for name, prompt, output in asked:
        engine.add_request(request(name, [1] * prompt, max_tokens=output))
    run(engine)
    return engine.record


def drawn(record):
    return ["".join(name or "." for name in row) for row in record.cells()]


def test_cells_show_who_ran_where_and_what_stayed_empty():
    record = recorded()
    assert drawn(record) == ["aaccc", "bbbbb"]
    assert (record.idle_cells, record.slot_utilisation) == (0, 1.0)
    fixed = recorded(StaticScheduler)
    assert drawn(fixed) == ["aa...ccc", "bbbbb..."]
    assert (fixed.idle_cells, fixed.slot_utilisation) == (6, 10 / 16)
    assert list(fixed.num_idle) == [0, 0, 1, 1, 1, 0, 0, 0]


def test_spans_are_the_bars_of_a_gantt_chart():
    record = recorded(max_num_batched_tokens=8, asked=(("a", 3, 3), ("b", 9, 2)))
    assert record.spans() == [
        Span("a", 0, 1, start=0, num_tokens=3, num_blocks=1, slot=0),
        Span("b", 0, 1, start=0, num_tokens=5, num_blocks=3, slot=1),
        Span("a", 1, 2, start=3, num_tokens=1, num_blocks=1, slot=0),
        Span("b", 1, 1, start=5, num_tokens=4, num_blocks=3, slot=1),
        Span("b", 2, 1, start=9, num_tokens=1, num_blocks=3, slot=1),
    ]
    bar = record.spans()[2]
    assert [bar.blocks_in(step, record.block_size) for step in (1, 2)] == [1, 2]


def test_steps_have_times_rows_and_blocks():
    record = recorded(asked=(("a", 5, 2), ("b", 1, 1)))
    # Two arrivals, then each step reads the clock when it begins and when its results are in.
    assert list(record.began) == [2.0, 4.0]
    assert list(record.ended) == [3.0, 5.0]
    assert list(record.num_rows) == [2, 1]
    assert list(record.blocks_used) == [3, 2]
    assert len(record) == 2


def test_a_slot_is_given_up_at_a_preemption_and_another_one_may_follow():
    record = recorded(
        asked=(("a", 5, 20), ("b", 5, 20), ("c", 5, 20)), max_num_seqs=3,
        num_blocks=8, block_size=4, num_host_blocks=9, max_num_batched_tokens=64,
    )  # fmt: skip
    told = record.preemptions()
    assert {one.swapped for one in told} == {True}
    for one in told:
        own = [span for span in record.spans() if span.request_id == one.request_id]
        assert not any(span.first_step <= one.step < span.end_step for span in own)
        assert any(span.first_step > one.step for span in own)
    assert len(record.cells()) == 3


def test_an_overlapped_step_is_shown_from_when_the_one_before_it_ended():
    record = recorded(async_scheduling=True, executor=DeferredExecutor(64, 4))
    assert any(a < b for a, b in zip(record.began[1:], record.ended, strict=False))
    ran = list(record.ran())
    assert all(a <= b for a, b in ran)
    assert all(before[1] <= after[0] for before, after in pairwise(ran))


def test_a_step_that_failed_takes_no_time():
    class Fails(DeferredExecutor):
        def run_one(self):
            self.queue.popleft()
            raise MemoryError("the device is full")

    engine = make_engine(executor=Fails(64, 4), clock=Ticks())
    engine.record = ScheduleRecord(engine.scheduler)
    engine.add_request(request("r", [1, 2]))
    with pytest.raises(MemoryError):
        engine.step()
    assert list(engine.record.began) == list(engine.record.ended)
    assert drawn(engine.record)[0] == "r"


def test_a_record_may_begin_in_the_middle():
    engine = make_engine(executor=DeferredExecutor(64, 4), async_scheduling=True, clock=Ticks())
    engine.add_request(request("r", [1, 2], max_tokens=6))
    engine.step()
    engine.record = ScheduleRecord(engine.scheduler)
    run(engine)
    assert all(a < b for a, b in zip(engine.record.began, engine.record.ended, strict=True))
    (span,) = engine.record.spans()
    assert span.start + span.num_steps == 2 + 6 - 1


def test_a_preemption_is_told_of_somebody_who_has_not_run_since_the_record_began():
    engine = make_engine(num_blocks=4, block_size=4)
    for name in "ab":
        engine.add_request(request(name, [1] * 7, max_tokens=6))
    engine.step()
    engine.step()
    engine.record = ScheduleRecord(engine.scheduler)
    engine.step()
    assert [(one.request_id, one.step) for one in engine.record.preemptions()] == [("b", 0)]


def test_nothing_that_ran_is_nothing_to_show():
    record = ScheduleRecord(make_engine().scheduler)
    assert (record.slot_utilisation, record.idle_cells, record.spans()) == (0.0, 0, [])
    assert all(event["ph"] == "M" for event in chrome_trace(record)["traceEvents"])


@pytest.mark.parametrize("kind", [ContinuousScheduler, partial(StaticScheduler)])
@pytest.mark.parametrize("overlapped", [False, True])
def test_the_trace_is_one_that_viewers_take(kind, overlapped):
    record = recorded(
        kind, asked=[(f"r{i}", 3 + 5 * i % 11, 4 + 7 * i % 13) for i in range(9)],
        executor=DeferredExecutor(20, 4), num_blocks=20, block_size=4, max_num_seqs=4,
        async_scheduling=overlapped,
    )  # fmt: skip
    trace = json.loads(json.dumps(chrome_trace(record)))
    events = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert min(times) == 0.0
    assert {event["pid"] for event in events} == {1}
    threads = {e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert threads == set(range(1 + 4))
    assert {event["tid"] for event in events} <= threads
    bars = [event for event in events if event["ph"] == "X"]
    for thread in threads:
        own = [bar for bar in bars if bar["tid"] == thread]
        assert all(bar["dur"] >= 0 for bar in own)
        for before, after in pairwise(own):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6  # one after the other
    computed = sum(b["args"]["steps"] * b["args"]["tokens_a_step"] for b in bars if b["tid"] > 0)
    assert computed == sum(
        span.num_steps * span.num_tokens for span in record.spans()
    ) >= sum(3 + 5 * i % 11 + 4 + 7 * i % 13 - 1 for i in range(9))  # fmt: skip
