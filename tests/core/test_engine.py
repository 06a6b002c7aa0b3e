"""The loop, with an executor that reads its context back through real block tables."""

import pytest

from minillm_serve.core import (
    EngineStalled,
    FinishedStep,
    FinishReason,
    InvariantViolation,
    Request,
    RequestRefused,
    SequenceOutput,
    StepResult,
)
from minillm_serve.core.invariants import check_idle
from tests.core.oracle import (
    VOCAB,
    OracleExecutor,
    expected_tokens,
    make_engine,
    next_token,
    prompts,
    request,
    run,
)


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("budget", [1, 7, 512])
@pytest.mark.parametrize("pool_tokens", [48, 4096])
def test_every_request_gets_its_own_tokens(block_size, budget, pool_tokens):
    engine = make_engine(
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
    # With a budget of one token only one request runs at a time, and nobody is in its way.
    assert (engine.scheduler.num_preemptions > 0) == (pool_tokens == 48 and budget > 1)
    check_idle(engine.scheduler)


def test_a_preempted_request_gives_the_tokens_of_an_undisturbed_one_b32():
    prompt = prompts(1)[0][:5]
    engine = make_engine(num_blocks=8, block_size=4, max_num_batched_tokens=64)
    metrics = []
    for name in "abc":
        metrics.append(engine.add_request(request(name, prompt, max_tokens=20)))
    tokens = run(engine)
    assert all(tokens[name] == expected_tokens(prompt, 20) for name in "abc")
    assert sum(m.num_preemptions for m in metrics) == engine.scheduler.num_preemptions > 0


def test_a_prompt_that_can_never_fit_is_refused_at_the_door_b26():
    engine = make_engine(num_blocks=8, block_size=4, max_model_len=64)
    with pytest.raises(RequestRefused, match=r"KV pool holds 32 tokens.*raise num_blocks"):
        engine.add_request(request("long", [1] * 40))
    engine.add_request(request("short", [1] * 4, max_tokens=3))
    assert run(engine) == {"short": expected_tokens([1] * 4, 3)}


@pytest.mark.parametrize(("length", "fits"), [(30, True), (31, True), (32, False), (33, False)])
def test_a_prompt_must_leave_room_for_one_token_b109(length, fits):
    engine = make_engine(max_model_len=32)
    if fits:
        engine.add_request(request("r", [1] * length, max_tokens=None))
        assert len(run(engine)["r"]) == 32 - length
    else:
        with pytest.raises(RequestRefused, match="max_model_len is 32"):
            engine.add_request(request("r", [1] * length))
        check_idle(engine.scheduler)


def test_no_max_tokens_ends_at_the_context_limit_b110():
    engine = make_engine(max_model_len=40)
    engine.add_request(request("r", [1, 2], max_tokens=None, ignore_eos=True))
    assert len(run(engine)["r"]) == 38


@pytest.mark.parametrize("bad", [VOCAB, -1, 1.5, "a", True, 2**40])
def test_ids_outside_the_vocabulary_are_refused_by_position_b106(bad):
    engine = make_engine()
    with pytest.raises(RequestRefused, match=r"prompt_token_ids\[1\]"):
        engine.add_request(request("r", [1, bad]))
    assert not engine.has_unfinished


def test_a_prompt_that_fills_the_pool_is_refused_and_one_that_nearly_does_ends_b25():
    engine = make_engine(num_blocks=2, block_size=4, max_model_len=64)
    with pytest.raises(RequestRefused, match="KV pool holds 8 tokens"):
        engine.add_request(request("full", [1] * 8, max_tokens=4))
    engine.add_request(request("nearly", [1] * 7, max_tokens=4))
    assert run(engine) == {"nearly": expected_tokens([1] * 7, 1)}
    check_idle(engine.scheduler)


def test_an_empty_prompt_is_refused_b104():
    with pytest.raises(RequestRefused, match="empty prompt"):
        make_engine().add_request(request("r", []))


def test_id_zero_is_a_token_like_any_other_b105():
    engine = make_engine()
    engine.add_request(request("r", [0, 0], max_tokens=3))
    assert run(engine)["r"] == expected_tokens([0, 0], 3)


def test_an_id_in_use_is_refused_and_free_again_afterwards_b41():
    engine = make_engine()
    engine.add_request(request("x", [1, 2], max_tokens=2))
    with pytest.raises(RequestRefused, match="request_id='x' is in use"):
        engine.add_request(request("x", [3], max_tokens=2))
    assert run(engine) == {"x": expected_tokens([1, 2], 2)}
    engine.add_request(request("x", [3], max_tokens=2))
    assert run(engine) == {"x": expected_tokens([3], 2)}


def test_the_engine_is_used_again_and_again_b47_b13():
    engine = make_engine(num_blocks=16)
    for turn in range(20):
        engine.add_request(request("r", [turn, turn + 1], max_tokens=5))
        assert run(engine)["r"] == expected_tokens([turn, turn + 1], 5)
        check_idle(engine.scheduler)


def test_eos_ends_a_request_unless_it_is_ignored():
    prompt = [3, 1, 4]
    tokens = expected_tokens(prompt, 12)
    eos = tokens[4]
    first = tokens.index(eos)
    engine = make_engine(eos_token_ids=[eos, VOCAB - 1])
    engine.add_request(request("stops", prompt, max_tokens=12))
    engine.add_request(request("goes on", prompt, max_tokens=12, ignore_eos=True))
    got = run(engine)
    assert got["stops"] == tokens[: first + 1]
    assert got["goes on"] == tokens


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_an_abort_frees_everything_exactly_once(steps_before):
    engine = make_engine(max_num_batched_tokens=4)
    metrics = engine.add_request(request("gone", [1] * 10, max_tokens=50))
    engine.add_request(request("stays", [2, 3], max_tokens=5))
    for _ in range(steps_before):
        engine.step()
    assert engine.abort("gone")
    assert not engine.abort("gone")
    assert metrics.finished_time is not None
    assert run(engine).get("gone") is None
    check_idle(engine.scheduler)


def test_aborting_an_unknown_id_does_nothing():
    assert not make_engine().abort("nobody")


def test_times_come_from_the_clock_that_was_given():
    """B36: the time to the first token is that of the last chunk, which brings it."""
    ticks = iter(range(100))
    engine = make_engine(clock=lambda: float(next(ticks)), max_num_batched_tokens=4)
    metrics = engine.add_request(request("r", [1] * 6, max_tokens=3))
    run(engine)
    # Tick 0: arrival. Each step reads the clock when it begins and when its results are in.
    assert metrics.arrival_time == 0
    assert metrics.first_scheduled_time == 1
    assert metrics.first_token_time == 4  # the second chunk brought it, not the first
    assert metrics.finished_time == 8
    assert (metrics.ttft, metrics.tpot, metrics.latency) == (4, 2, 8)


def test_an_observer_sees_every_step():
    records = []
    engine = make_engine(on_step=records.append, num_blocks=8, max_num_batched_tokens=6)
    engine.add_request(request("r", [1] * 8, max_tokens=3))
    run(engine)
    assert [r.num_tokens for r in records] == [6, 2, 1, 1]
    assert [r.num_sampled for r in records] == [0, 1, 1, 1]
    assert [r.tokens_stored for r in records] == [6, 8, 9, 10]
    assert [r.blocks_used for r in records] == [2, 2, 3, 3]
    assert records[-1].finished == ("r",)


class FailsOnce(OracleExecutor):
    """Raises in its second step, as a device that runs out of memory would."""

    def submit(self, batch):
        if len(self.batches) == 1:
            self.batches.append(batch)
            raise MemoryError("the device is full")
        return super().submit(batch)


def test_a_failing_step_ends_its_own_sequences_and_no_others():
    engine = make_engine(executor=FailsOnce(64, 4), max_num_seqs=1)
    engine.add_request(request("hit", [1, 2], max_tokens=5))
    engine.add_request(request("spared", [3], max_tokens=5))
    engine.step()
    with pytest.raises(MemoryError):
        engine.step()
    assert run(engine) == {"spared": expected_tokens([3], 5)}
    check_idle(engine.scheduler)


class Forgetful(OracleExecutor):
    """Returns no outputs at all."""

    def submit(self, batch):
        return FinishedStep(StepResult(()))


def test_an_executor_that_drops_outputs_is_caught():
    engine = make_engine(executor=Forgetful(64, 4))
    engine.add_request(request("r", [1]))
    with pytest.raises(InvariantViolation, match="0 outputs for 1 scheduled"):
        engine.step()


def test_a_scheduler_that_schedules_nothing_is_caught():
    engine = make_engine()
    engine.add_request(request("r", [1]))
    engine.scheduler._admit = lambda budget: []
    with pytest.raises(EngineStalled, match="ContinuousScheduler scheduled none"):
        engine.step()


def test_a_wrong_block_would_be_noticed():
    """The oracle can fail: it is fed a table whose blocks were swapped."""

    class Swapped(OracleExecutor):
        def _output(self, item):
            item.sequence.block_table.reverse()
            output = super()._output(item)
            item.sequence.block_table.reverse()
            return output

    engine = make_engine(executor=Swapped(64, 4))
    prompt = [5, 6, 7, 8, 9, 10]
    engine.add_request(request("r", prompt, max_tokens=1))
    assert run(engine)["r"] != expected_tokens(prompt, 1)


def test_importing_core_leaves_torch_alone():
    import subprocess
    import sys

    code = "import sys, minillm_serve.core; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unseeded_requests_draw_their_seeds_from_the_engines():
    def seeds(seed):
        engine = make_engine(seed=seed)
        for name in "ab":
            engine.add_request(Request(request_id=name, prompt_token_ids=(1,)))
        return [s.seed for s in engine.scheduler.waiting]

    assert seeds(1) == seeds(1) != seeds(2)
    assert len(set(seeds(1))) == 2


def test_errors_of_one_sequence_are_told():
    class Sick(OracleExecutor):
        def _output(self, item):
            if item.sequence.request.request_id == "sick":
                return SequenceOutput(error="not finite")
            return super()._output(item)

    engine = make_engine(executor=Sick(64, 4))
    engine.add_request(request("sick", [1, 2]))
    engine.add_request(request("well", [1, 2], max_tokens=2))
    updates = engine.step()
    assert updates[0].finish_reason is FinishReason.ERROR
    assert run(engine)["well"] == expected_tokens([1, 2], 2)[1:]
    assert next_token([1, 2]) == expected_tokens([1, 2], 1)[0]
