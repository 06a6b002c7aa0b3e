"""Accept, queue or refuse: our own door, what it is told of the engine, and when it is asked."""

import math
import pickle

import pytest

from minillm_serve.core import (
    Accept,
    Admission,
    FinishReason,
    Load,
    Overloaded,
    Pace,
    Queue,
    Refuse,
    SamplingParams,
    asked_tokens,
)
from minillm_serve.core.invariants import check_idle
from tests.core.oracle import VOCAB, make_engine, request, run

BUSY = {"num_running": 4, "max_num_seqs": 4, "max_len": 100, "tokens_per_second": 50.0}


def door(**limits):
    return Admission(max_model_len=100, pool_tokens=100, vocab_size=VOCAB, **limits)


def busy(**more):
    return Load(now=100.0, **{**BUSY, **more})


class Listed:
    """A door that keeps books of who is inside, and says what it is told to say."""

    def __init__(self, ours, verdict=None):
        self.max_len, self.check = ours.max_len, ours.check
        self.inside, self.verdict, self.asked = [], verdict or Accept(), 0

    def admit(self, request, load):
        self.asked += 1
        if not isinstance(self.verdict, Refuse):
            self.inside.append(request.request_id)
        return self.verdict

    def leave(self, request_id):
        self.inside.remove(request_id)


def with_door(verdict=None, **options):
    return make_engine(door=lambda ours: Listed(ours, verdict), **options)


@pytest.mark.parametrize(
    ("limits", "load", "why"),
    [
        ({"max_num_waiting": 3}, {"num_waiting": 3}, "3 wait already (max_num_waiting=3)"),
        ({"max_num_waiting": 3}, {"num_waiting": 2}, None),
        ({"max_waiting_tokens": 60}, {"num_waiting": 1, "waiting_tokens": 50}, "come to 50 tokens"),
        ({"max_waiting_tokens": 61}, {"num_waiting": 1, "waiting_tokens": 50}, None),
        ({"max_waiting_tokens": 1}, {}, None),  # the first in line always may wait
        ({"max_waiting_tokens": 1}, {"num_running": 1, "waiting_tokens": 50}, None),  # seats
        ({"refuse_late": True}, {"num_waiting": 1, "waiting_tokens": 500}, "10 s, 5 s too long"),
        ({"refuse_late": True}, {"num_waiting": 1, "waiting_tokens": 200}, None),
        ({"refuse_late": True}, {"waiting_tokens": 500, "tokens_per_second": None}, None),
        ({"refuse_late": True}, {"num_running": 3, "waiting_tokens": 500}, None),
    ],
)
def test_the_door_refuses_what_its_limits_say_and_nothing_else(limits, load, why):
    asked = request("r", [1] * 5, max_tokens=6, deadline=105.0)
    verdict = door(**limits).admit(asked, busy(**load))
    if why is None:
        assert verdict == Accept()
    else:
        assert why in verdict.why
        assert verdict.retry_after == max(1.0, busy(**load).estimated_wait)


def test_a_full_pool_makes_people_wait_though_there_are_seats():
    free = busy(num_running=1, num_waiting=1, waiting_tokens=100)
    assert (free.has_seats, free.estimated_wait) == (True, 0.0)
    full = busy(num_running=1, num_waiting=1, waiting_tokens=100, kv_usage=0.95)
    assert (full.has_seats, full.estimated_wait) == (False, 2.0)


def test_what_a_request_may_come_to_counts_every_answer_and_stops_at_the_limit():
    assert asked_tokens(request("r", [1] * 5, max_tokens=6), 100) == 11
    assert asked_tokens(request("r", [1] * 5, max_tokens=600), 100) == 100
    assert asked_tokens(request("r", [1] * 5, max_tokens=None), 100) == 100
    several = request("r", [1] * 5, max_tokens=6)
    object.__setattr__(several, "params", SamplingParams(max_tokens=6, n=3))
    assert asked_tokens(several, 100) == 5 + 3 * 6


def test_the_waiting_tokens_are_those_of_who_has_not_begun_however_they_go():
    engine = make_engine(max_num_seqs=1)
    for name in "abc":
        engine.add_request(request(name, [1, 2, 3], max_tokens=4))
    assert engine.load.waiting_tokens == 21
    engine.step()  # a begins
    assert engine.load.waiting_tokens == 14
    engine.abort("b")
    assert engine.load.waiting_tokens == 7
    run(engine)
    assert (engine.load.waiting_tokens, engine.load.num_waiting) == (0, 0)


def test_an_engine_is_told_who_may_wait_how_long():
    now = [0.0]
    engine = with_door(Queue(at_most=5.0), max_num_seqs=1, clock=lambda: now[0])
    engine.add_request(request("runs", [1, 2], max_tokens=9))
    engine.add_request(request("own", [1, 2], max_tokens=9, deadline=3.0))
    engine.add_request(request("waits", [1, 2], max_tokens=9))
    engine.step()
    for moment, name in ((3.0, "own"), (5.0, "waits")):
        now[0] = moment
        (update,) = engine.step()
        assert (update.request_id, update.finish_reason) == (name, FinishReason.DEADLINE)
    assert set(run(engine)) == {"runs"}
    assert engine.admission.inside == []


def test_who_is_refused_is_told_when_to_come_again_and_never_was_inside():
    engine = with_door(Refuse(2.5, "it rains"))
    with pytest.raises(
        Overloaded, match=r"'r' is refused, since it rains: .* in 2\.5 s"
    ) as refused:
        engine.add_request(request("r", [1]))
    assert refused.value.retry_after == 2.5
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.retry_after) == (str(refused.value), 2.5)
    assert engine.admission.inside == []
    check_idle(engine.scheduler)


@pytest.mark.parametrize("how", ["finish", "abort", "deadline", "error"])
def test_the_door_is_told_once_of_everybody_who_leaves_b117(how):
    now = [0.0]
    engine = with_door(max_num_seqs=2, clock=lambda: now[0])
    engine.add_request(request("first", [1, 2], max_tokens=8))
    deadline = 1.0 if how == "deadline" else None
    if how == "deadline":
        engine.add_request(request("second", [1, 2], max_tokens=8))
    engine.step()
    engine.add_request(request("it", [3], max_tokens=2, deadline=deadline))
    assert "it" in engine.admission.inside
    if how == "abort":
        engine.abort("it")
    elif how == "error":
        engine.executor.submit = None  # the next step fails for all that it concerns
        with pytest.raises(TypeError):
            engine.step()
    now[0] = 2.0
    while "it" in engine.admission.inside:
        assert engine.has_unfinished
        engine.step()
    if how != "error":
        run(engine)
    assert engine.admission.inside == []
    assert not engine.has_unfinished


def test_a_check_is_no_admission():
    engine = with_door()
    engine.admission.check(request("r", [1]))
    assert engine.admission.asked == 0


def test_the_pace_counts_time_once_and_forgets_slowly():
    pace = Pace()
    assert pace.tokens_per_second is None
    pace.note(0.0, 1.0, 100)
    pace.note(0.5, 2.0, 100)  # under way while the one before was
    assert pace.tokens_per_second == pytest.approx(100)
    pace.note(1000.0, 1001.0, 300)  # the idle time between does not count
    assert 100 < pace.tokens_per_second < 300
    for second in range(1001, 1100):
        pace.note(second, second + 1, 300)
    assert pace.tokens_per_second == pytest.approx(300, rel=0.01)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan, "soon", True])
def test_seconds_that_are_none_are_refused(seconds):
    for verdict in (Queue, Refuse):
        with pytest.raises(ValueError, match=f"{seconds!r}: give seconds"):
            verdict(seconds)
