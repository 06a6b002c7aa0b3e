"""Static and dynamic batching: when a batch begins, and that it then stays as it is."""

import math
from functools import partial

import pytest

from minillm_serve.core import DynamicScheduler, EngineStalled, StaticScheduler
from minillm_serve.core.invariants import check_idle
from tests.core.oracle import expected_tokens, make_engine, request, run


class Crowd:
    """An engine on a clock that stands still unless told otherwise."""

    def __init__(self, kind=StaticScheduler, *, delay=None, slots=3, **options):
        self.now = 0.0
        self.engine = make_engine(
            scheduler=partial(kind, max_queue_delay=delay),
            max_num_seqs=slots,
            clock=lambda: self.now,
            **options,
        )

    def come(self, name, prompt=(1, 2), max_tokens=4, **options):
        self.engine.add_request(request(name, list(prompt), max_tokens, **options))

    def step(self):
        """Who computed what: names with the number of tokens."""
        before = len(self.engine.executor.batches)
        self.engine.step()
        batches = self.engine.executor.batches[before:]
        return {
            item.sequence.request.request_id: item.num_tokens
            for batch in batches
            for item in batch.scheduled
        }

    @property
    def last(self):
        return self.engine.executor.batches[-1]


def test_static_waits_for_a_full_batch_however_long_that_takes():
    crowd = Crowd()
    crowd.come("a")
    crowd.come("b")
    crowd.now = 1e6
    assert crowd.step() == {}
    assert crowd.engine.idle_until == math.inf
    crowd.come("c")
    assert crowd.engine.idle_until is None
    assert crowd.step() == {"a": 2, "b": 2, "c": 2}


def test_static_begins_with_fewer_when_nobody_has_come_for_a_while():
    crowd = Crowd(delay=5.0)
    crowd.come("a")
    crowd.now = 4.0
    crowd.come("b")  # and now it is waited for a third one until 9
    crowd.now = 8.9
    assert crowd.step() == {}
    assert crowd.engine.idle_until == 9.0
    crowd.now = 9.0
    assert crowd.step() == {"a": 2, "b": 2}


def test_dynamic_lets_nobody_wait_longer_than_the_delay():
    crowd = Crowd(DynamicScheduler, delay=5.0)
    crowd.come("a")
    crowd.now = 4.0
    crowd.come("b")
    assert crowd.step() == {}
    assert crowd.engine.idle_until == 5.0
    crowd.now = 5.0
    assert crowd.step() == {"a": 2, "b": 2}


def test_dynamic_begins_at_once_when_the_batch_is_full():
    crowd = Crowd(DynamicScheduler, delay=5.0)
    for name in "abcd":
        crowd.come(name)
    assert crowd.step() == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("kind", [StaticScheduler, DynamicScheduler])
def test_a_flush_begins_a_batch_until_somebody_comes_again(kind):
    crowd = Crowd(kind, delay=9.0)
    crowd.come("a", max_tokens=1)
    assert crowd.step() == {}
    crowd.engine.flush()
    assert crowd.engine.idle_until is None
    assert crowd.step() == {"a": 2}
    crowd.come("b")
    assert crowd.step() == {}


@pytest.mark.parametrize("kind", [StaticScheduler, DynamicScheduler])
def test_when_the_one_that_was_waited_on_leaves_the_others_count(kind):
    crowd = Crowd(kind, delay=5.0)
    crowd.come("a")
    crowd.now = 1.0
    crowd.come("b")
    crowd.engine.abort("b" if kind is StaticScheduler else "a")
    assert crowd.engine.idle_until == (5.0 if kind is StaticScheduler else 6.0)


def test_a_batch_runs_to_its_longest_and_nobody_joins_it():
    crowd = Crowd()
    for name, length in (("a", 2), ("b", 5), ("c", 3), ("d", 1), ("e", 1), ("f", 1)):
        crowd.come(name, max_tokens=length)
    seen = []
    while crowd.engine.has_unfinished:
        seen.append(("".join(crowd.step()), crowd.last.num_idle))
    assert seen == [("abc", 0), ("abc", 0), ("bc", 1), ("b", 2), ("b", 2), ("def", 0)]
    check_idle(crowd.engine.scheduler)


def test_an_aborted_row_stays_idle_and_an_abandoned_batch_is_over():
    crowd = Crowd()
    for name in "abcdef":
        crowd.come(name, max_tokens=9)
    crowd.step()
    crowd.engine.abort("b")
    assert crowd.step() == {"a": 1, "c": 1}
    assert crowd.last.num_idle == 1
    crowd.engine.abort("a")
    crowd.engine.abort("c")
    assert crowd.step() == {"d": 2, "e": 2, "f": 2}
    assert crowd.last.num_idle == 0


def test_all_prompts_are_read_in_chunks_before_anybody_decodes():
    crowd = Crowd(max_num_batched_tokens=4)
    crowd.come("a", [1, 2, 3])
    crowd.come("b", [4])
    crowd.come("c", [5, 6, 7, 8])
    assert [crowd.step() for _ in range(4)] == [
        {"a": 3, "c": 1},
        {"c": 3},
        {"a": 1, "b": 1, "c": 1},
        {"a": 1, "b": 1, "c": 1},
    ]


def test_a_batch_has_no_more_rows_than_the_budget_has_tokens():
    crowd = Crowd(slots=5, max_num_batched_tokens=2)
    for name in "abcd":
        crowd.come(name)
    seen = []
    while crowd.engine.has_unfinished:
        seen.append("".join(crowd.step()))
    assert seen == ["a", "b", "ab", "ab", "ab", "c", "d", "cd", "cd", "cd"]


def test_memory_for_the_longest_answers_is_there_from_the_start_so_nobody_is_preempted_b46():
    # Each may get 2 + 6 tokens, 2 blocks of 4: two fit into 5 blocks, though three prompts would.
    crowd = Crowd(num_blocks=5, block_size=4)
    for name in "abc":
        crowd.come(name, max_tokens=6)
    assert set(crowd.step()) == {"a", "b"}
    tokens = run(crowd.engine)
    assert tokens["c"] == expected_tokens([1, 2], 6)
    assert crowd.engine.scheduler.num_preemptions == 0


def test_an_answer_without_limit_is_given_the_whole_pool():
    crowd = Crowd(num_blocks=4, block_size=4)
    crowd.come("a", max_tokens=None)
    crowd.come("b")
    crowd.engine.flush()
    assert set(crowd.step()) == {"a"}
    assert len(run(crowd.engine)["a"]) == 16 - 2 - 1


@pytest.mark.parametrize("kind", [StaticScheduler, DynamicScheduler])
@pytest.mark.parametrize("delay", [-1.0, math.nan])
def test_a_delay_below_zero_is_refused(kind, delay):
    with pytest.raises(ValueError, match="max_queue_delay"):
        Crowd(kind, delay=delay)


def test_waiting_on_purpose_is_no_stall_and_a_stall_is_no_waiting():
    crowd = Crowd()
    crowd.come("a")
    assert crowd.engine.step() == []
    crowd.engine.scheduler.admit = lambda sequence: crowd.engine.scheduler.waiting.remove(sequence)
    crowd.engine.scheduler._begin_batch = lambda: None
    crowd.engine.flush()
    with pytest.raises(EngineStalled, match="StaticScheduler scheduled none"):
        crowd.engine.step()
