"""Preemption by swapping: what is copied when, what it costs, and that nothing is lost or leaks."""

import pytest

from minillm_serve.core import (
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    FinishReason,
    RecoveryCost,
    Sequence,
    SequenceStatus,
    SwapSpace,
)
from minillm_serve.core.invariants import check_idle, check_invariants
from tests.core.deferred import DeferredExecutor
from tests.core.oracle import OracleExecutor, expected_tokens, make_engine, request, run


def crowd(*, num_host_blocks=16, pays=None, overlapped=False, names="abc", **options):
    """More than 8 blocks of 4 hold: somebody must give way."""
    options.setdefault("executor", DeferredExecutor(8, 4, num_host_blocks))
    engine = make_engine(
        num_blocks=8, block_size=4, num_host_blocks=num_host_blocks, async_scheduling=overlapped,
        max_num_batched_tokens=64, **options
    )  # fmt: skip
    if pays is not None:
        engine.scheduler.blocks.swap_space = SwapSpace(num_host_blocks, pays)
    for index, name in enumerate(names):
        engine.add_request(request(name, [index + 1] * 5, max_tokens=20))
    return engine


def until_swapped(engine):
    """The first sequence that was swapped out, right after the step that took its place."""
    while engine.has_unfinished:
        engine.step()
        for sequence in engine.scheduler.waiting:
            if sequence.status is SequenceStatus.SWAPPED:
                return sequence
    raise AssertionError("nobody was ever swapped out")


def check_tokens(engine, names="abc"):
    tokens = run(engine)
    for index, name in enumerate(names):
        assert tokens[name] == expected_tokens([index + 1] * 5, 20)
    check_idle(engine.scheduler)


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("num_host_blocks", [3, 16])
def test_a_swapped_request_gives_the_tokens_of_an_undisturbed_one_b32(overlapped, num_host_blocks):
    engine = crowd(num_host_blocks=num_host_blocks, overlapped=overlapped)
    check_tokens(engine)
    assert engine.scheduler.num_swaps > 0


def test_every_swap_keeps_the_tokens_so_that_none_is_computed_twice():
    def computed(engine):
        check_tokens(engine)
        return sum(end - start for s in engine.executor.submitted for start, end, _ in s.slices)

    swaps, recomputes = crowd(), crowd(pays=lambda tokens, blocks: False)
    assert computed(swaps) == 3 * (5 + 20 - 1)
    assert computed(recomputes) > 3 * (5 + 20 - 1)
    assert swaps.scheduler.num_swaps == swaps.scheduler.num_preemptions > 0
    assert recomputes.scheduler.num_swaps == 0 < recomputes.scheduler.num_preemptions


def test_only_blocks_with_computed_tokens_are_copied_and_all_of_them_come_back():
    engine = crowd()
    sequence = until_swapped(engine)
    (out, _) = engine.executor.submitted[-1].swaps
    assert [host for _, host in out] == sequence.host_table
    assert len(out) == -(-sequence.num_computed // 4)
    assert sequence.block_table == []
    host = list(sequence.host_table)
    while sequence.status is SequenceStatus.SWAPPED:
        engine.step()
    back = next(step.swaps[1] for step in reversed(engine.executor.submitted) if step.swaps[1])
    assert set(zip(host, sequence.block_table[: len(host)], strict=True)) <= set(back)
    assert sequence.host_table == []


def test_without_room_on_the_host_a_sequence_is_computed_again():
    engine = crowd(num_host_blocks=1)
    check_tokens(engine)
    assert engine.scheduler.num_swaps == 0 < engine.scheduler.num_preemptions


@pytest.mark.parametrize("overlapped", [False, True])
def test_the_end_of_a_swapped_request_frees_its_blocks_once_b44(overlapped):
    engine = crowd(overlapped=overlapped)
    sequence = until_swapped(engine)
    pool = engine.scheduler.blocks.swap_space.pool
    assert pool.num_free < pool.num_blocks
    assert engine.abort(sequence.request.request_id)
    assert not engine.abort(sequence.request.request_id)
    assert pool.num_free == pool.num_blocks
    check_invariants(engine.scheduler)
    run(engine)
    check_idle(engine.scheduler)


def test_a_request_aborted_after_every_step_leaves_nothing_on_the_host():
    for steps in range(1, 40):
        engine = crowd(overlapped=True)
        for _ in range(steps):
            engine.step()
        for name in "cba":
            engine.abort(name)
        check_idle(engine.scheduler)


class Fails(OracleExecutor):
    """The first step that copies anything fails half-way."""

    def submit(self, batch):
        if batch.swap_out and not any(b.swap_out for b in self.batches):
            self.batches.append(batch)
            raise MemoryError("the device is full")
        return super().submit(batch)


def test_whoever_was_being_copied_when_a_step_failed_ends_with_it():
    engine = crowd(executor=Fails(8, 4, 16))
    with pytest.raises(MemoryError):
        run(engine)
    swapped = engine.executor.batches[-1].swap_out[0].sequence
    assert swapped.finish_reason is FinishReason.ERROR
    assert swapped.request.request_id not in engine.metrics
    engine.add_request(request("later", [9, 9], max_tokens=3))
    assert run(engine)["later"] == expected_tokens([9, 9], 3)
    check_idle(engine.scheduler)


def test_a_block_of_the_host_is_not_given_away_before_the_step_that_empties_it():
    """Steps copy out first, so what comes in must still lie there."""
    engine = crowd(num_host_blocks=5, names="a")
    scheduler, space = engine.scheduler, engine.scheduler.blocks.swap_space
    engine.step()
    (first,) = scheduler.running
    scheduler.preempt(first)
    assert space.pool.num_free == 3
    engine.add_request(request("b", [2] * 5, max_tokens=20))
    assert scheduler.blocks.grow(first, len(first))
    scheduler.admit(first)
    assert space.pool.num_free == 3
    scheduler.preempt(first)  # its blocks hold nothing yet: this time it is computed again
    assert first.status is SequenceStatus.PREEMPTED
    check_invariants(scheduler)
    assert run(engine) == {
        "a": expected_tokens([1] * 5, 20)[1:],
        "b": expected_tokens([2] * 5, 20),
    }


class RoundRobin(ContinuousScheduler):
    """Sends whoever runs longest to the end of the queue at every other step."""

    is_steady = False
    turn = 0

    def schedule(self):
        self.turn += 1
        if self.turn % 2 == 0 and self.waiting and self.running:
            longest = self.running[0]
            longest.rank = (longest.rank[0] + 100, longest.rank[1])
            self.preempt(longest)
        return super().schedule()


@pytest.mark.parametrize("overlapped", [False, True])
def test_blocks_go_out_and_others_come_in_with_one_step(overlapped):
    engine = crowd(overlapped=overlapped, scheduler=RoundRobin, max_num_seqs=2, names="abcd")
    check_tokens(engine, names="abcd")
    both = [step for step in engine.executor.submitted if all(step.swaps)]
    assert len(both) > 5
    # Some came in where others had just gone out.
    assert any({a for a, _ in out} & {b for _, b in back} for out, back in (s.swaps for s in both))


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_was_planned_for_a_sequence_is_forgotten_with_it(comes_back):
    engine = crowd(names="a")
    engine.step()
    (sequence,) = engine.scheduler.running
    engine.scheduler.preempt(sequence)
    assert sequence.status is SequenceStatus.SWAPPED
    if comes_back:
        engine.scheduler.blocks.grow(sequence, len(sequence))
        engine.scheduler.admit(sequence)
    engine.abort("a")
    assert engine.scheduler.blocks.swap_space.take() == ((), ())
    check_idle(engine.scheduler)


def test_a_table_comes_back_whole_and_only_what_was_computed_went_out():
    space = SwapSpace(4)
    blocks = BlockManager(BlockPool(6), 4, space)
    sequence = Sequence(request("r", [1] * 14))
    blocks.grow(sequence, 14)
    sequence.num_computed = 6
    assert blocks.swap_out(sequence)
    assert [block for block, _ in space.take()[0][0].moves] == [0, 1]
    assert blocks.pool.num_free == 6
    assert blocks.num_missing(sequence, 1) == 2
    assert blocks.grow(sequence, 1)
    assert len(sequence.block_table) == 2
    assert len(space.take()[1][0].moves) == 2
    assert space.pool.num_free == 4


def test_a_copy_that_is_written_over_would_be_noticed():
    """The oracle can fail: here the host forgets what it was given."""

    class Forgets(DeferredExecutor):
        def swap(self, out, back):
            super().swap(out, back)
            self.host = [[-1] * self.block_size for _ in self.host]

    engine = crowd(executor=Forgets(8, 4, 16))
    tokens = run(engine)
    assert any(
        tokens[name] != expected_tokens([index + 1] * 5, 20) for index, name in enumerate("abc")
    )


def cost(**changes):
    numbers = {
        "flops_per_token": 2 * 7e9,
        "flops_per_pair": 4 * 32 * 32 * 128,
        "flops_s": 400e12,
        "block_bytes": 16 * 2 * 32 * 8 * 128 * 2,
        "host_bytes_s": 25e9,
    }
    return RecoveryCost(**{**numbers, **changes})


def test_a_long_context_is_swapped_and_a_short_one_computed_again():
    at = {n: cost().swap_is_cheaper(n, -(-n // 16)) for n in (1, 16, 1024, 8192)}
    assert at == {1: False, 16: True, 1024: True, 8192: True}


def test_a_slow_bus_or_many_bytes_a_token_favour_computing_again():
    many = 32 / 8  # as many KV heads as query heads
    assert not cost(host_bytes_s=2e9).swap_is_cheaper(1024, 64)
    assert cost(block_bytes=many * cost().block_bytes).swap_seconds(64) == pytest.approx(
        many * cost(latency_s=0.0).swap_seconds(64) + 2 * cost().latency_s
    )


def test_attention_makes_computing_again_grow_faster_than_copying():
    short, long = (cost().recompute_seconds(n) / n for n in (100, 100_000))
    assert long > 2 * short
