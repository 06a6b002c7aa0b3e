"""Several answers to one prompt: n > 1."""

from functools import partial

import pytest

from minillm_serve.core import (
    ContinuousScheduler,
    DynamicScheduler,
    FinishReason,
    Request,
    SamplingParams,
    Scheduler,
    StaticScheduler,
)
from minillm_serve.core.batch import Batch, ScheduledSequence
from minillm_serve.core.invariants import check_idle, check_invariants
from tests.core.deferred import DeferredExecutor
from tests.core.oracle import expected_tokens, make_engine, request

TEN = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
CACHES = pytest.mark.parametrize("cache", ["hash", "radix", None])


def collect(engine, max_steps=2000):
    """Runs until idle; the tokens of each request and answer."""
    tokens = {}
    for _ in range(max_steps):
        if not engine.has_unfinished:
            return tokens
        engine.flush()
        for update in engine.step():
            tokens.setdefault((update.request_id, update.index), []).extend(update.new_token_ids)
    raise AssertionError("still busy")


def wanted(name, prompt, count, n):
    return {(name, index): expected_tokens(prompt, count, index) for index in range(n)}


def num_computed(engine):
    return sum(batch.num_tokens for batch in engine.executor.batches)


@CACHES
def test_siblings_share_the_prompt_and_copy_the_block_that_they_write_to(cache):
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=64)
    engine.add_request(request("r", TEN, 6, n=3))
    engine.step()
    assert (len(engine.scheduler.running), len(engine.scheduler.waiting)) == (1, 2)
    engine.step()
    tables = [sequence.block_table for sequence in engine.scheduler.running]
    assert [table[:2] for table in tables] == [tables[0][:2]] * 3
    assert len({table[2] for table in tables}) == 3
    batch = engine.executor.batches[-1]
    assert {copy.source for copy in batch.copies} == {tables[0][2]}
    assert {copy.target for copy in batch.copies} == {tables[1][2], tables[2][2]}
    assert [item.num_tokens for item in batch.scheduled] == [1, 1, 1]
    assert engine.prefix_stats.num_live == 2 + 3
    assert collect(engine)[("r", 2)] == expected_tokens(TEN, 6, 2)[1:]
    assert num_computed(engine) == 10 + 2 + 3 * 5
    check_idle(engine.scheduler)


@CACHES
def test_a_prompt_that_fills_its_blocks_leaves_only_the_last_to_copy(cache):
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=64)
    engine.add_request(request("r", TEN[:9], 4, n=2))
    assert collect(engine) == wanted("r", TEN[:9], 4, 2)
    assert not any(batch.copies for batch in engine.executor.batches)  # 8 is a block's border


@CACHES
@pytest.mark.parametrize("kind", [ContinuousScheduler, StaticScheduler, DynamicScheduler])
@pytest.mark.parametrize("overlapped", [False, True])
def test_every_scheduler_gives_n_answers(cache, kind, overlapped):
    engine = make_engine(
        executor=DeferredExecutor(64, 4),
        scheduler=kind,
        prefix_cache=cache,
        max_num_seqs=4,
        max_num_batched_tokens=7,
        async_scheduling=overlapped,
    )
    asked = {"a": ([*TEN, 1], 5, 3), "b": (TEN, 7, 2), "c": ([5], 3, 6), "d": (TEN[:4], 1, 3)}
    for name, (prompt, count, n) in asked.items():
        engine.add_request(request(name, prompt, count, n=n))
    right = {}
    for name, (prompt, count, n) in asked.items():
        right |= wanted(name, prompt, count, n)
    assert collect(engine) == right
    check_idle(engine.scheduler)


@CACHES
@pytest.mark.parametrize("num_host_blocks", [0, 12])
def test_siblings_are_preempted_and_come_back(cache, num_host_blocks):
    engine = make_engine(
        num_blocks=10, num_host_blocks=num_host_blocks, prefix_cache=cache, max_num_seqs=4
    )
    engine.add_request(request("r", TEN[:5], 20, n=3))
    engine.add_request(request("s", TEN[:4], 16))
    right = wanted("r", TEN[:5], 20, 3) | wanted("s", TEN[:4], 16, 1)
    assert collect(engine) == right
    assert engine.scheduler.num_preemptions > 0
    check_idle(engine.scheduler)


@CACHES
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_an_abort_ends_all_siblings_wherever_they_stand_b43(cache, steps):
    """B43: held back, waiting or running, none of them is left, and no block either."""
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=8, max_num_seqs=2)
    engine.add_request(request("r", TEN, 500, n=3, ignore_eos=True))
    for _ in range(steps):
        engine.step()
    assert engine.abort("r")
    assert not engine.abort("r")
    assert engine.metrics == {}
    assert engine.prefix_stats.num_live == 0
    check_idle(engine.scheduler)


@CACHES
def test_one_answer_can_end_without_the_others(cache):
    engine = make_engine(prefix_cache=cache)
    engine.add_request(request("r", TEN, 6, n=3))
    assert engine.finish("r", FinishReason.STOP, 0)  # before it has read the prompt for them
    for _ in range(3):
        engine.step()
        check_invariants(engine.scheduler)
    assert engine.finish("r", FinishReason.STOP, 1)
    assert not engine.finish("r", FinishReason.STOP, 1)
    assert "r" in engine.metrics
    tokens = collect(engine)
    assert set(tokens) == {("r", 2)}
    assert tokens["r", 2] == expected_tokens(TEN, 6, 2)[-len(tokens["r", 2]) :]
    check_idle(engine.scheduler)


def test_siblings_draw_with_seeds_of_their_own_b92():
    """B92: seed + index, so that they differ, and are the same each time."""
    engine, seeds = make_engine(), []
    for name in ("one", "two"):
        engine.add_request(
            Request(
                request_id=name,
                prompt_token_ids=(1, 2),
                params=SamplingParams(n=3, seed=42, max_tokens=9),
            )
        )
        engine.step()
        engine.step()
        seeds.append(sorted(s.seed for s in engine.scheduler.running))
        engine.abort(name)
    assert seeds == [[42, 43, 44]] * 2


def test_siblings_go_right_behind_the_first_answer():
    engine = make_engine(max_num_seqs=1)
    engine.add_request(request("r", TEN, 2, n=3))
    engine.add_request(request("later", TEN, 2))
    assert list(collect(engine)) == [("r", 0), ("r", 1), ("r", 2), ("later", 0)]


@pytest.mark.parametrize("kind", [ContinuousScheduler, StaticScheduler])
def test_nobody_is_left_of_a_request_that_expires_before_it_begins(kind):
    now = 0.0
    engine = make_engine(
        scheduler=partial(kind), max_num_seqs=1, clock=lambda: now, max_num_batched_tokens=64
    )
    engine.add_request(request("runs", TEN, 50))
    engine.flush()
    engine.step()
    engine.add_request(request("late", TEN, 5, n=3, deadline=1.0))
    now = 2.0
    updates = engine.step()
    assert {(u.request_id, u.index) for u in updates} == {("late", i) for i in range(3)}
    assert {u.finish_reason for u in updates} == {FinishReason.DEADLINE}
    assert set(engine.metrics) == {"runs"}


def test_what_siblings_share_and_is_not_indexed_stays_so_while_one_of_them_needs_it():
    """Number 0 reads no cache here, and somebody else's blocks with the same tokens are there."""
    engine = make_engine(prefix_cache="hash")
    engine.add_request(request("before", TEN[:5], 1))
    collect(engine)
    engine.add_request(request("r", TEN, 9, n=2, prompt_logprobs=0))
    for _ in range(3):
        engine.step()
    engine.scheduler.blocks.shared.clear()
    assert engine.finish("r", FinishReason.STOP, 1)
    check_invariants(engine.scheduler)
    assert engine.prefix_stats.num_cached == 0
    assert collect(engine)["r", 0] == expected_tokens(TEN, 9)[3:]
    check_idle(engine.scheduler)


def test_metrics_are_of_all_answers_together():
    engine = make_engine(max_num_batched_tokens=64)
    metrics = engine.add_request(request("r", TEN, 6, n=3))
    collect(engine)
    assert metrics.num_output_tokens == 18
    assert metrics.finished_time is not None


def test_a_scheduler_that_only_knows_grow_computes_every_answer():
    class Plain(Scheduler):
        def schedule(self):
            while self.waiting and len(self.running) < self.max_num_seqs:
                self.admit(self.waiting.head())
            scheduled = []
            for sequence in self.running:
                num_tokens = min(sequence.num_uncomputed, 2)
                if self.blocks.grow(sequence, sequence.num_computed + num_tokens):
                    scheduled.append(ScheduledSequence.of(sequence, num_tokens))
            return Batch(tuple(scheduled))

    engine = make_engine(scheduler=Plain, prefix_cache="hash")
    engine.add_request(request("r", TEN, 6, n=3))
    assert collect(engine) == wanted("r", TEN, 6, 3)
    check_idle(engine.scheduler)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", True])
def test_a_number_of_answers_that_is_none_is_refused(n):
    with pytest.raises(ValueError, match="n="):
        SamplingParams(n=n)
