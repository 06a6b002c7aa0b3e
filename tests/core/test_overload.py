"""Too many, or too late: who is refused, who is dropped, and that they are told so."""

import math

import pytest

from minillm_serve.core import (
    FinishReason,
    Overloaded,
    RequestRefused,
    SequenceStatus,
    StaticScheduler,
)
from minillm_serve.core.invariants import check_idle
from tests.core.oracle import expected_tokens, make_engine, request, run


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_queue_that_is_full_refuses_newcomers_and_takes_them_again_later():
    engine = make_engine(limits={"max_num_waiting": 2}, max_num_seqs=1)
    for name in "ab":
        engine.add_request(request(name, [1, 2], max_tokens=2))
    with pytest.raises(Overloaded, match=r"'c' is refused, since 2 wait already.*max_num_waiting"):
        engine.add_request(request("c", [1, 2], max_tokens=2))
    assert "c" not in engine.metrics
    engine.step()
    engine.add_request(request("c", [1, 2], max_tokens=2))
    assert set(run(engine)) == {"a", "b", "c"}
    check_idle(engine.scheduler)


def test_what_can_never_be_served_is_told_so_even_when_the_queue_is_full():
    engine = make_engine(limits={"max_num_waiting": 1})
    engine.add_request(request("a", [1]))
    with pytest.raises(RequestRefused, match="empty prompt") as refused:
        engine.add_request(request("b", []))
    assert not isinstance(refused.value, Overloaded)


def test_who_has_not_begun_by_the_deadline_is_dropped_with_a_reason():
    clock = Clock()
    engine = make_engine(max_num_seqs=1, clock=clock)
    engine.add_request(request("runs", [1, 2], max_tokens=9, deadline=5.0))
    metrics = engine.add_request(request("waits", [3], max_tokens=9, deadline=5.0))
    engine.add_request(request("patient", [4], max_tokens=2))
    sequence = list(engine.scheduler.waiting)[1]
    engine.step()
    clock.now = 4.9
    engine.step()
    assert sequence.status is SequenceStatus.WAITING
    clock.now = 5.0
    updates = {update.request_id: update for update in engine.step()}
    assert updates["waits"].finish_reason is FinishReason.DEADLINE
    assert "deadline, 5 s" in sequence.error
    assert (metrics.finished_time, metrics.num_output_tokens) == (5.0, 0)
    # Who has begun is served to the end, however late.
    assert run(engine)["runs"] == expected_tokens([1, 2], 9)[2:]
    check_idle(engine.scheduler)


def test_a_preempted_request_has_begun_and_outlives_its_deadline():
    clock = Clock()
    engine = make_engine(num_blocks=4, block_size=4, clock=clock)
    for name in "ab":
        engine.add_request(request(name, [1, 2, 3], max_tokens=9, deadline=1.0))
    tokens = {name: [] for name in "ab"}
    while engine.has_unfinished:
        for update in engine.step():
            tokens[update.request_id] += update.new_token_ids
        clock.now += 1.0
    assert engine.scheduler.num_preemptions > 0
    assert tokens == dict.fromkeys("ab", expected_tokens([1, 2, 3], 9))


def test_an_engine_with_nobody_but_the_late_is_idle_afterwards():
    clock = Clock()
    engine = make_engine(clock=clock)
    engine.add_request(request("late", [1], deadline=1.0))
    clock.now = 2.0
    assert [update.finish_reason for update in engine.step()] == [FinishReason.DEADLINE]
    assert not engine.has_unfinished
    assert engine.idle_until == math.inf
    check_idle(engine.scheduler)


def test_a_deadline_ends_the_wait_for_others_too():
    clock = Clock()
    engine = make_engine(clock=clock, scheduler=StaticScheduler)
    engine.add_request(request("alone", [1], deadline=5.0))
    assert engine.step() == []
    assert engine.idle_until == 5.0
    clock.now = engine.idle_until
    assert [update.finish_reason for update in engine.step()] == [FinishReason.DEADLINE]


def test_an_aborted_request_is_not_dropped_again_at_its_deadline():
    clock = Clock()
    engine = make_engine(max_num_seqs=1, clock=clock)
    engine.add_request(request("stays", [1], max_tokens=3))
    engine.add_request(request("gone", [1], deadline=1.0))
    engine.abort("gone")
    clock.now = 2.0
    assert [update.request_id for update in engine.step()] == ["stays"]


def test_a_deadline_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="deadline=nan"):
        request("r", [1], deadline=math.nan)
