"""The overlapped loop: same tokens, late discoveries, blocks freed once and in time."""

import pytest

from minillm_serve.core import EngineStalled, FinishReason, SequenceOutput
from minillm_serve.core.invariants import check_idle, check_invariants
from tests.core.deferred import DeferredExecutor
from tests.core.machine import STEPS, run_machine
from tests.core.oracle import expected_tokens, make_engine, prompts, request, run
from tests.core.users_machine import UsersMachine


def make(*, num_blocks=64, block_size=4, executor=None, **options):
    executor = executor or DeferredExecutor(num_blocks, block_size)
    return make_engine(
        num_blocks=num_blocks,
        block_size=block_size,
        executor=executor,
        async_scheduling=True,
        **options,
    )


@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("budget", [1, 7, 512])
@pytest.mark.parametrize("pool_tokens", [48, 4096])
def test_every_request_gets_the_tokens_of_the_plain_loop(block_size, budget, pool_tokens):
    engine = make(
        num_blocks=pool_tokens // block_size,
        block_size=block_size,
        max_num_batched_tokens=budget,
    )
    given = prompts(12)
    for index, prompt in enumerate(given):
        engine.add_request(request(f"r{index}", prompt, max_tokens=12))
    tokens = run(engine)
    for index, prompt in enumerate(given):
        assert tokens[f"r{index}"] == expected_tokens(prompt, 12)
    assert engine.executor.most_queued == 2
    check_idle(engine.scheduler)


def test_a_step_is_scheduled_while_the_one_before_it_runs():
    engine = make()
    engine.add_request(request("r", [1, 2, 3], max_tokens=4))
    (update,) = engine.step()
    assert update.new_token_ids == (expected_tokens([1, 2, 3], 1)[0],)
    (first, second) = engine.executor.submitted
    assert second.result is None  # under way, and built upon a token that nobody has seen yet
    assert second.known == [[1, 2, 3]]
    assert second.slices == [(3, 4, True)]
    assert first.result is not None


def test_an_end_by_length_is_known_in_advance_and_costs_no_step():
    engine = make()
    engine.add_request(request("r", [1, 2, 3], max_tokens=4))
    run(engine)
    assert [step.slices for step in engine.executor.submitted] == [
        [(0, 3, True)],
        [(3, 4, True)],
        [(4, 5, True)],
        [(5, 6, True)],
    ]


def test_the_context_limit_is_known_in_advance_too_b65():
    engine = make(max_model_len=8)
    engine.add_request(request("r", [1, 2, 3], max_tokens=None))
    assert run(engine) == {"r": expected_tokens([1, 2, 3], 5)}
    assert max(end for step in engine.executor.submitted for _, end, _ in step.slices) == 7


def test_a_stop_token_is_discovered_one_step_late_and_the_extra_token_is_dropped():
    prompt = [3, 1, 4]
    tokens = expected_tokens(prompt, 12)
    eos = tokens[4]
    first = tokens.index(eos)
    engine = make(eos_token_ids=[eos])
    engine.add_request(request("stops", prompt, max_tokens=12))
    engine.add_request(request("goes on", prompt, max_tokens=12, ignore_eos=True))
    got = run(engine)
    assert got == {"stops": tokens[: first + 1], "goes on": tokens}
    # One step more than its tokens need, and none after that.
    assert sum(len(s.sequences) == 2 for s in engine.executor.submitted) == first + 2
    check_idle(engine.scheduler)


def test_the_blocks_of_a_stopped_sequence_are_its_own_until_the_extra_step_is_done():
    prompt = [3, 1, 4]
    (eos,) = expected_tokens(prompt, 1)
    engine = make(eos_token_ids=[eos])
    pool = engine.scheduler.blocks.pool
    engine.add_request(request("stops", prompt, max_tokens=12))
    engine.add_request(request("goes on", prompt, max_tokens=12, ignore_eos=True))
    updates = {u.request_id: u for u in engine.step()}
    assert updates["stops"].finish_reason is FinishReason.STOP
    assert pool.num_free == pool.num_blocks - 2
    engine.step()
    assert pool.num_free == pool.num_blocks - 2 + 1 - 1  # one gone, one grown: position 4
    assert len(engine.scheduler.running) == 1


@pytest.mark.parametrize("others", [True, False])
def test_an_abort_in_flight_frees_its_blocks_once_and_not_before_its_step_is_done_b44(others):
    engine = make()
    pool = engine.scheduler.blocks.pool
    engine.add_request(request("gone", [1, 2, 3], max_tokens=20))
    if others:
        engine.add_request(request("stays", [5], max_tokens=6))
    engine.step()
    step = engine.executor.submitted[-1]
    assert step.result is None
    assert engine.abort("gone")
    assert not engine.abort("gone")
    if others:
        assert step.result is None
        assert pool.num_free == pool.num_blocks - 2
        check_invariants(engine.scheduler)
        engine.step()
        assert pool.num_free == pool.num_blocks - 1
        assert run(engine)["stays"] == expected_tokens([5], 6)[2:]
    assert step.result is not None  # with nobody else to serve, it was waited for
    check_idle(engine.scheduler)


def test_an_id_whose_request_was_aborted_in_flight_can_be_used_again_at_once_b41():
    engine = make()
    engine.add_request(request("other", [9], max_tokens=9))
    engine.add_request(request("x", [1, 2, 3], max_tokens=20))
    engine.step()
    engine.abort("x")
    metrics = engine.add_request(request("x", [4, 4], max_tokens=3))
    assert run(engine)["x"] == expected_tokens([4, 4], 3)
    assert metrics.num_output_tokens == 3


def test_a_preempted_request_gives_the_tokens_of_an_undisturbed_one_b32():
    prompt = prompts(1)[0][:5]
    engine = make(num_blocks=8, block_size=4, max_num_batched_tokens=64)
    for name in "abc":
        engine.add_request(request(name, prompt, max_tokens=20))
    tokens = run(engine)
    assert all(tokens[name] == expected_tokens(prompt, 20) for name in "abc")
    assert engine.scheduler.num_preemptions > 0


def test_nobody_is_preempted_for_blocks_that_are_about_to_come_back_b46():
    # Both reach a block's edge when one of them ends; its block is what the other needs.
    engine = make(num_blocks=4, block_size=4)
    engine.add_request(request("ends", [1] * 5, max_tokens=4))
    engine.add_request(request("goes on", [2] * 5, max_tokens=8))
    tokens = run(engine)
    assert tokens["goes on"] == expected_tokens([2] * 5, 8)
    assert engine.scheduler.num_preemptions == 0


def test_a_sequence_preempted_in_flight_keeps_the_token_that_it_was_given():
    """A policy may preempt for reasons of its own, whatever is under way."""
    engine = make()
    scheduler = engine.scheduler
    engine.add_request(request("a", [1, 2], max_tokens=9))
    engine.add_request(request("b", [3, 4, 5], max_tokens=9))
    honest, calls = scheduler.schedule, []

    def schedule():
        calls.append(1)
        if len(calls) in (3, 5):
            scheduler.preempt(scheduler.running[-1])
        return honest()

    scheduler.schedule = schedule
    assert run(engine) == {
        "a": expected_tokens([1, 2], 9),
        "b": expected_tokens([3, 4, 5], 9),
    }
    assert scheduler.num_preemptions == 2


def test_times_and_records_are_those_of_the_steps_that_gave_the_tokens():
    ticks = iter(range(100))
    records = []
    engine = make(clock=lambda: float(next(ticks)), on_step=records.append)
    metrics = engine.add_request(request("r", [1] * 6, max_tokens=3))
    run(engine)
    # 0 arrival; 1 and 2 two steps are scheduled; 3 the first is done; 4 the third is scheduled;
    # 5 the second is done; 6 nothing is left to schedule; 7 the third is done.
    assert (metrics.first_scheduled_time, metrics.first_token_time) == (1, 3)
    assert metrics.last_token_time == metrics.finished_time == 7
    assert [(r.began, r.ended) for r in records] == [(1, 3), (2, 5), (4, 7)]
    assert [r.num_sampled for r in records] == [1, 1, 1]
    assert [r.tokens_stored for r in records] == [6, 7, 8]
    assert records[-1].finished == ("r",)


class Fails(DeferredExecutor):
    """A step fails: when it is submitted, or when it is waited for."""

    def __init__(self, where, number):
        super().__init__(64, 4)
        self.where, self.number = where, number

    def submit(self, batch):
        if self.where == "submit" and len(self.submitted) == self.number:
            self.submitted.append(None)
            raise MemoryError("the device is full")
        return super().submit(batch)

    def run_one(self):
        if self.where == "wait" and self.queue[0] in self.submitted[self.number : self.number + 1]:
            self.queue.popleft()
            raise MemoryError("the device is full")
        super().run_one()


@pytest.mark.parametrize("where", ["submit", "wait"])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_failing_step_ends_its_own_sequences_and_no_others(where, number):
    engine = make(executor=Fails(where, number), max_num_seqs=1)
    engine.add_request(request("hit", [1, 2], max_tokens=20))
    engine.add_request(request("spared", [3], max_tokens=5))
    got = []

    def serve():
        for _ in range(6):
            got.extend(engine.step())

    with pytest.raises(MemoryError):
        serve()
    assert [u.new_token_ids[0] for u in got] == expected_tokens([1, 2], len(got))
    assert run(engine) == {"spared": expected_tokens([3], 5)}
    check_idle(engine.scheduler)


def test_a_failure_that_concerns_nobody_any_more_is_kept_quiet():
    (eos,) = expected_tokens([1, 2], 1)
    engine = make(executor=Fails("wait", 1), eos_token_ids=[eos])
    engine.add_request(request("r", [1, 2], max_tokens=20))
    (update,) = engine.step()
    assert update.finish_reason is FinishReason.STOP
    check_idle(engine.scheduler)


class Spoils(DeferredExecutor):
    """The third step finds logits that are no numbers."""

    def _sample(self, step, i, end):
        output = super()._sample(step, i, end)
        return SequenceOutput(error="NaN") if step in self.submitted[2:3] else output


def test_a_sequence_that_fails_while_its_next_step_is_under_way_ends_once_b68():
    engine = make(executor=Spoils(64, 4))
    engine.add_request(request("r", [1, 2], max_tokens=20))
    updates = []
    while engine.has_unfinished:
        updates += engine.step()
    assert [u.finish_reason for u in updates] == [None, None, FinishReason.ERROR]
    check_idle(engine.scheduler)


def test_a_scheduler_that_schedules_nothing_is_caught_when_nothing_is_under_way():
    engine = make()
    engine.add_request(request("r", [1]))
    engine.scheduler._admit = lambda budget: []
    with pytest.raises(EngineStalled, match="ContinuousScheduler scheduled none"):
        engine.step()


class AsyncMachine(UsersMachine):
    make = staticmethod(make)
    guesses = False  # steps that overlap have no drafts


def test_a_random_crowd_is_served_right_through_10_000_steps():
    assert run_machine(AsyncMachine) >= STEPS
