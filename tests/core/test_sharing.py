"""Sequences that share blocks through a prefix cache, seen from the engine."""

import pytest

from minillm_serve.core import (
    Batch,
    FinishReason,
    HashPrefixCache,
    Namespace,
    ScheduledSequence,
    Sequence,
    SequenceOutput,
    Swap,
)
from minillm_serve.core.invariants import check_idle, check_invariants
from tests.core.deferred import DeferredExecutor
from tests.core.ledger import Ledger
from tests.core.oracle import expected_tokens, make_engine, prompts, request, run

pytestmark = pytest.mark.parametrize("cache", ["hash", "radix"])
EIGHT = [3, 1, 4, 1, 5, 9, 2, 6]


def ask(engine, prompt, max_tokens=4, name="r", **options):
    """One request, alone; what it got, and how many tokens of its prompt were cached."""
    metrics = engine.add_request(request(name, prompt, max_tokens, **options))
    return run(engine)[name], metrics.num_cached_tokens


def ask_all(engine, asked):
    """Requests that come together; how many tokens of each prompt were cached."""
    metrics = [engine.add_request(one) for one in asked]
    tokens = run(engine)
    for one in asked:
        prompt = list(one.prompt_token_ids)
        wanted = expected_tokens(prompt, one.params.max_tokens)
        assert tokens[one.request_id] == wanted, one.request_id
    return [m.num_cached_tokens for m in metrics]


def computed(engine, name):
    """Tokens that the executor computed for a request, a slice a step."""
    items = [item for batch in engine.executor.batches for item in batch.scheduled]
    return [i.num_tokens for i in items if i.sequence.request.request_id == name]


def test_a_prompt_asked_twice_is_found_but_for_its_last_block_b01(cache):
    """B01: what ends with a block still leaves a token to compute."""
    engine = make_engine(prefix_cache=cache)
    assert ask(engine, EIGHT) == (expected_tokens(EIGHT, 4), 0)
    assert ask(engine, EIGHT) == (expected_tokens(EIGHT, 4), 4)
    assert computed(engine, "r")[-4:] == [4, 1, 1, 1]


def test_a_longer_prompt_finds_all_of_a_shorter_one_b02(cache):
    """B02: publishing what was found adds no second entry and breaks no chain."""
    ledger = Ledger(cache, 4)
    engine = make_engine(prefix_cache=ledger)
    found = [ask(engine, EIGHT, max_tokens=1)[1] for _ in range(3)]
    assert ledger.num_cached == 2
    assert [*found, ask(engine, [*EIGHT, 7, 7, 7, 7])[1]] == [0, 4, 4, 8]
    ledger.check(engine.executor.memory)


def test_what_was_overwritten_is_not_found_again_b03_b05(cache):
    """B03, B05: three blocks in all, so that each prompt drives the other out."""
    engine = make_engine(num_blocks=3, prefix_cache=cache)
    other = [x + 20 for x in EIGHT]
    for prompt in (EIGHT, other, EIGHT, other, EIGHT):
        assert ask(engine, prompt, max_tokens=2) == (expected_tokens(prompt, 2), 0)
    assert engine.prefix_stats.num_evicted > 0


def test_a_preempted_sequence_finds_its_own_blocks_again_b06(cache):
    """B06: the count of tokens to compute follows from what is found."""
    engine = make_engine(prefix_cache=cache)
    engine.add_request(request("r", [*EIGHT, 7, 7], max_tokens=6))
    engine.step()
    (sequence,) = engine.scheduler.running
    engine.scheduler.preempt(sequence)
    check_invariants(engine.scheduler)
    engine.step()
    (item,) = engine.executor.batches[-1].scheduled
    assert (item.start, item.num_tokens, item.samples) == (8, 3, True)
    assert run(engine)["r"] == expected_tokens([*EIGHT, 7, 7], 6)[2:]


def test_what_is_evicted_while_somebody_waits_for_it_is_computed_again_b07(cache):
    """B07: a match is looked up when it is used, and not before."""
    engine = make_engine(num_blocks=6, max_num_seqs=1, prefix_cache=cache)
    ask(engine, EIGHT, max_tokens=1, name="first")
    engine.add_request(request("evicts", [50 + i for i in range(17)], max_tokens=7))
    engine.add_request(request("waits", [*EIGHT, 7], max_tokens=3))
    assert engine.scheduler.blocks.shared.match(Sequence(request("?", [*EIGHT, 7]))) != []
    assert run(engine)["waits"] == expected_tokens([*EIGHT, 7], 3)
    assert sum(computed(engine, "waits")) == 9 + 2


def test_warm_and_cold_prompts_of_different_lengths_share_a_step_b08(cache):
    """B08: each row reads its own blocks."""
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=64)
    ask(engine, EIGHT)
    warm, cold, tiny = [*EIGHT, 8, 8], [30 + i for i in range(11)], [5]
    asked = [request(str(i), p, 6) for i, p in enumerate((warm, cold, tiny, EIGHT))]
    assert ask_all(engine, asked) == [8, 0, 0, 4]


def test_an_admission_without_room_changes_nothing_b10_b11(cache):
    """B10, B11: what it found is let go of again."""
    engine = make_engine(num_blocks=4, prefix_cache=cache)
    ask(engine, EIGHT, max_tokens=1)
    blocks = engine.scheduler.blocks
    before = blocks.stats
    too_long, in_the_way = (
        Sequence(request("x", [*EIGHT, *EIGHT, 1])),
        Sequence(request("x", [*EIGHT, 1])),
    )
    assert not blocks.begin(too_long)
    assert not blocks.begin(in_the_way, leave=2)
    for sequence in (too_long, in_the_way):
        assert (sequence.block_table, sequence.num_computed) == ([], 0)
    assert blocks.stats == before
    check_idle(engine.scheduler)
    assert blocks.begin(in_the_way, leave=1)
    assert (len(in_the_way.block_table), in_the_way.num_computed) == (3, 8)
    blocks.release(in_the_way)
    check_idle(engine.scheduler)


def test_many_prompts_one_after_the_other_leave_no_reference_b13(cache):
    """B13: 20 prompts through 16 blocks."""
    engine = make_engine(num_blocks=16, prefix_cache=cache)
    for i in range(20):
        ask(engine, [i + 1, *EIGHT[1:]], max_tokens=3)
    assert engine.prefix_stats.num_evicted > 0
    check_idle(engine.scheduler)


def test_live_and_cached_blocks_are_two_gauges_b14(cache):
    """B14: idle, nothing is live, and what is cached is as good as free."""
    engine = make_engine(num_blocks=300, prefix_cache=cache)
    ask_all(engine, [request(str(i), p, 3) for i, p in enumerate(prompts(30))])
    stats, pool = engine.prefix_stats, engine.scheduler.blocks.pool
    assert (stats.num_live, stats.num_evicted) == (0, 0)
    assert 0 < stats.num_cached == pool.num_blocks - pool.num_free
    assert engine.scheduler.blocks.num_available == pool.num_blocks
    assert engine.reset_prefix_cache()
    assert engine.prefix_stats.num_cached == 0
    assert pool.num_free == pool.num_blocks


def test_nothing_is_reset_while_somebody_is_served(cache):
    engine = make_engine(prefix_cache=cache)
    engine.add_request(request("r", EIGHT))
    engine.step()
    assert not engine.reset_prefix_cache()
    run(engine)
    assert engine.reset_prefix_cache()


def test_a_salt_is_no_adapter_and_neither_is_shared_b19(cache):
    """B19: every part of the namespace is told apart."""
    engine = make_engine(prefix_cache=cache)
    assert ask(engine, EIGHT, cache_salt="x")[1] == 0
    assert ask(engine, EIGHT)[1] == 0
    assert ask(engine, EIGHT, cache_salt="y")[1] == 0
    assert ask(engine, EIGHT, cache_salt="x")[1] == 4
    engine.scheduler.blocks.shared.namespace = Namespace(adapter="x")
    assert ask(engine, EIGHT)[1] == 0
    engine.scheduler.blocks.shared.namespace = Namespace(kv_dtype="x")
    assert ask(engine, EIGHT)[1] == 0
    engine.scheduler.blocks.shared.namespace = Namespace(model="x")
    assert ask(engine, EIGHT)[1] == 0
    assert ask(engine, EIGHT, cache_salt="x")[1] == 0


def test_no_chunk_is_empty_however_much_is_found_b35(cache):
    """B35: 16 of 20 tokens are cached, and the budget is 8."""
    prompt = [*EIGHT, *EIGHT, 7, 7, 7, 7]
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=8)
    ask(engine, prompt[:16], max_tokens=1, name="before")
    ask(engine, prompt, max_tokens=3)
    assert computed(engine, "r") == [4, 1, 1]


def test_hits_are_counted_once_a_request_b119(cache):
    """B119: neither preemption nor waiting counts a prompt again."""
    engine = make_engine(num_blocks=8, max_num_batched_tokens=64, prefix_cache=cache)
    crowd = [request(f"r{i}", [i + 1] * 5, 20) for i in range(3)]
    ask_all(engine, crowd)
    assert engine.scheduler.num_preemptions > 0
    stats = engine.prefix_stats
    assert (stats.queries, stats.hits, stats.hit_rate) == (15, 0, 0)
    ask(engine, [1] * 5)
    assert engine.prefix_stats.hits in (0, 4)
    assert engine.prefix_stats.queries == 20


def test_identical_prompts_that_come_in_together_are_computed_once(cache):
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=64)
    prompt = [*EIGHT, *EIGHT, 7]
    assert ask_all(engine, [request(str(i), prompt, 5) for i in range(4)]) == [0, 16, 16, 16]
    first = engine.executor.batches[0]
    assert [item.num_tokens for item in first.scheduled] == [17, 1, 1, 1]
    assert len({tuple(item.sequence.block_table[:4]) for item in first.scheduled}) == 1


def test_a_prompt_in_chunks_is_shared_as_far_as_it_has_come(cache):
    prompt = [*EIGHT, *EIGHT, 7]
    engine = make_engine(prefix_cache=cache, max_num_batched_tokens=12)
    first, second = (engine.add_request(request(name, prompt, 3)) for name in "ab")
    tokens = run(engine)
    assert tokens == dict.fromkeys("ab", expected_tokens(prompt, 3))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 16)


def test_the_next_turn_finds_the_last_answer_too(cache):
    engine = make_engine(prefix_cache=cache)
    history, found = list(EIGHT), []
    for _ in range(4):
        answer, cached = ask(engine, history, max_tokens=6)
        found.append(cached)
        history += [*answer, 7, 7]
    assert found == [0, 12, 20, 28]


@pytest.mark.parametrize("swapped", [False, True])
def test_tokens_still_pending_are_never_published(cache, swapped):
    ledger = Ledger(cache, 2)
    engine = make_engine(
        num_blocks=16,
        block_size=2,
        num_host_blocks=8 if swapped else 0,
        executor=DeferredExecutor(16, 2, 8),
        prefix_cache=ledger,
        async_scheduling=True,
        max_num_batched_tokens=64,
    )
    for i in range(4):
        engine.add_request(request(f"r{i}", [9, 9, 9, i], 9))
    for steps in range(60):
        if steps == 5:
            assert engine.abort("r3")
        if not engine.has_unfinished:
            break
        engine.step()
        if not engine.executor.queue:
            ledger.check(engine.executor.memory)
    assert ledger.num_cached > 0
    check_idle(engine.scheduler)
    ledger.check(engine.executor.memory)


def test_48_requests_hold_a_common_beginning_once_and_the_rest_each(cache):
    """512 common tokens and 20 of one's own: 32 blocks in all, and 2 or 3 each."""
    engine = make_engine(
        num_blocks=400,
        block_size=16,
        max_num_seqs=48,
        max_num_batched_tokens=4096,
        prefix_cache=cache,
    )
    common = [(7 * i) % 97 for i in range(512)]
    for i in range(48):
        engine.add_request(request(f"r{i}", [*common, i, *[5] * 19], max_tokens=30))
    for new in range(1, 30):
        engine.step()
        # After a step everybody has 512 + 20 + new tokens, the last of which is not written yet.
        assert engine.prefix_stats.num_live == 512 // 16 + 48 * -(-(20 + new - 1) // 16)
    stats = engine.prefix_stats
    assert (stats.queries, stats.hits) == (48 * 532, 47 * 512)
    assert sum(item.num_tokens for item in engine.executor.batches[0].scheduled) == 512 + 48 * 20


class Fails(DeferredExecutor):
    """Fails at one of its steps."""

    def __init__(self, *sizes, at):
        super().__init__(*sizes)
        self.at = at

    def run_one(self):
        self.at -= 1
        if self.at:
            return super().run_one()
        step = self.queue.popleft()
        self.sampled = dict.fromkeys(step.sequences, 0)
        raise RuntimeError("the device is on fire")


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_failed_step_ends_those_who_took_part_and_nobody_else(cache, overlapped):
    engine = make_engine(
        executor=Fails(64, 4, 0, at=2),
        prefix_cache=cache,
        async_scheduling=overlapped,
        max_num_batched_tokens=8,
    )
    engine.add_request(request("bystander", [1, 2, 3], max_tokens=9))
    engine.step()  # by now the second step may be under way
    engine.add_request(request("writer", EIGHT, max_tokens=9))
    engine.add_request(request("reader", [*EIGHT[:4], 5], max_tokens=9))
    with pytest.raises(RuntimeError, match="fire"):
        engine.step()
    # Overlapped, the writer came in after the failed step; the reader did so in any case.
    assert set(engine.metrics) == ({"writer", "reader"} if overlapped else {"reader"})
    for name, got in run(engine).items():
        prompt = EIGHT if name == "writer" else [*EIGHT[:4], 5]
        assert got == expected_tokens(prompt, 9)
    check_idle(engine.scheduler)


def test_who_was_let_in_on_a_promise_fails_with_it_and_nobody_else(cache):
    """The writer's step fails while the reader's is under way already."""
    engine = make_engine(
        executor=Fails(64, 4, 0, at=1),
        prefix_cache=cache,
        async_scheduling=True,
        max_num_batched_tokens=8,
    )
    for name, prompt in (("writer", EIGHT), ("reader", [*EIGHT, 5]), ("other", [7, 7])):
        engine.add_request(request(name, prompt, max_tokens=3))
    with pytest.raises(RuntimeError, match="fire"):
        engine.step()
    assert set(engine.metrics) == {"other"}
    assert run(engine) == {"other": expected_tokens([7, 7], 3)}
    assert ask(engine, [*EIGHT, 5])[1] == 0
    check_idle(engine.scheduler)


def test_a_block_that_a_later_step_completes_is_lost_with_the_first_one(cache):
    """The first step writes rows 0..2 of a block, and fails; the second one adds row 3."""
    engine = make_engine(
        executor=Fails(64, 4, 0, at=1),
        prefix_cache=cache,
        async_scheduling=True,
        max_num_batched_tokens=3,
    )
    engine.add_request(request("r", EIGHT))
    with pytest.raises(RuntimeError, match="fire"):
        engine.step()
    assert engine.prefix_stats.num_cached == 0
    assert ask(engine, EIGHT) == (expected_tokens(EIGHT, 4), 0)


def test_a_step_that_fails_may_not_have_brought_swapped_blocks_back(cache):
    sequence = Sequence(request("r", EIGHT))
    item = ScheduledSequence(sequence, 6, 2, samples=True)
    assert Batch((item,)).writes == {sequence: 6}
    assert Batch((item,), swap_in=(Swap(sequence, ((0, 6), (1, 7))),)).writes == {sequence: 0}


def test_a_sequence_that_failed_alone_leaves_nothing_to_others(cache):
    class Spoils(DeferredExecutor):
        def _sample(self, step, i, end):
            if len(self.submitted) == 1:
                return SequenceOutput(error="not finite")
            return super()._sample(step, i, end)

    engine = make_engine(executor=Spoils(64, 4), prefix_cache=cache)
    engine.add_request(request("r", EIGHT))
    (update,) = engine.step()
    assert update.finish_reason is FinishReason.ERROR
    assert engine.prefix_stats.num_cached == 0
    assert ask(engine, EIGHT) == (expected_tokens(EIGHT, 4), 0)


def test_swapped_sequences_come_back_to_blocks_of_their_own(cache):
    engine = make_engine(
        num_blocks=8, num_host_blocks=16, max_num_batched_tokens=64, prefix_cache=cache
    )
    crowd = [request(f"r{i}", [1, 2, 3, 4, i], 18) for i in range(3)]
    ask_all(engine, crowd)
    assert engine.scheduler.num_swaps > 0


def test_a_poor_hash_function_costs_hits_and_nothing_else_b17(cache):
    """B17: the tokens are compared on a hit. (The radix tree compares nothing but tokens.)"""
    poor = HashPrefixCache(4, lambda data: b"the same") if cache == "hash" else cache
    engine = make_engine(prefix_cache=poor)
    other = [x + 20 for x in EIGHT]
    for prompt in (EIGHT, other, EIGHT, other):
        assert ask(engine, prompt)[0] == expected_tokens(prompt, 4)


def test_blocks_behind_somebody_elses_are_not_kept_for_their_sake(cache):
    """A has computed what B published first: behind B's blocks, A's would keep those from going."""
    engine = make_engine(num_blocks=8, max_num_batched_tokens=64, prefix_cache=cache)
    wants_all = request("a", EIGHT, 2, prompt_logprobs=0)  # reads no cache, whatever is in there
    ask(engine, EIGHT[:5], max_tokens=1, name="b")
    engine.add_request(wants_all)
    engine.step()
    assert engine.prefix_stats.num_cached == 1
    run(engine)
    assert ask(engine, [*EIGHT, 7])[1] == 8  # when it was over, its second block was published


@pytest.mark.parametrize("salt", [3, b"x", ["x"]])
def test_a_salt_that_is_no_text_is_refused(cache, salt):
    with pytest.raises(ValueError, match="cache_salt="):
        request("r", EIGHT, cache_salt=salt)
