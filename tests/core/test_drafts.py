"""Drafts in the engine: room for them at nobody's expense, and only what was right stays."""

from dataclasses import replace
from functools import partial

import pytest

from minillm_serve.core import (
    Batch,
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    DynamicScheduler,
    FinishReason,
    FixedLengths,
    InvariantViolation,
    OutOfBlocks,
    Priority,
    ScheduleRecord,
    Sequence,
    SequenceOutput,
    SpecStats,
    StaticScheduler,
    StepResult,
    SwapSpace,
)
from minillm_serve.core.invariants import check_batch, check_idle, check_invariants
from tests.core.deferred import DeferredExecutor
from tests.core.guessing import AnyLengths, Guesser
from tests.core.oracle import (
    OracleExecutor,
    expected_tokens,
    make_engine,
    nothing,
    prompts,
    request,
    run,
)

RIGHT, WRONG = [True], [False]
LAST_OF_FOUR_WRONG = [True, True, True, False]


def make(rights, most=5, *, executor=DeferredExecutor, num_host_blocks=0, **options):
    """An engine whose sequences all get `most` drafts if they can, and that keeps its steps."""
    guess = Guesser(rights, count=most) if rights is not None else nothing
    sizes = options.setdefault("num_blocks", 64), options.setdefault("block_size", 4)
    return make_engine(
        executor=executor(*sizes, num_host_blocks, guess),
        num_host_blocks=num_host_blocks,
        lengths=FixedLengths(most),
        **options,
    )


def slices(engine, number=-1):
    """What each sequence computed in a step: (start, end)."""
    return [(start, end) for start, end, _ in engine.executor.submitted[number].slices]


def counts(engine, number=-1):
    """How many drafts each sequence had in a step."""
    return [len(drafts) for drafts in engine.executor.submitted[number].drafts]


@pytest.mark.parametrize("rights", [RIGHT, WRONG, LAST_OF_FOUR_WRONG, 0.7], ids=str)
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("cache", [None, "hash", "radix"])
@pytest.mark.parametrize("pool_tokens", [48, 4096])
def test_every_request_gets_its_own_tokens_whatever_is_guessed_b56_b58(
    rights, block_size, cache, pool_tokens
):
    """B56, B58: every token comes from the row of its own position, and nothing wrong is hashed."""
    engine = make(
        rights,
        most=4,
        num_blocks=pool_tokens // block_size,
        block_size=block_size,
        prefix_cache=cache,
        max_num_batched_tokens=24,
    )
    given = prompts(12)
    for index, prompt in enumerate(given):
        engine.add_request(request(f"r{index}", prompt, max_tokens=12))
    tokens = run(engine)
    for index, prompt in enumerate(given):
        assert tokens[f"r{index}"] == expected_tokens(prompt, 12)
    assert (engine.scheduler.num_preemptions > 0) == (pool_tokens == 48)
    assert engine.spec_stats.num_drafts > 20
    check_idle(engine.scheduler)


@pytest.mark.parametrize(
    ("rights", "most", "gains"),
    [(WRONG, 1, 1), (LAST_OF_FOUR_WRONG, 4, 4), (RIGHT, 4, 5), ([False, True], 4, 1)],
)
def test_a_step_gives_the_right_drafts_and_one_token_more_b56(rights, most, gains):
    """B56: what counts as computed is real tokens, and all but the last of them."""
    engine = make(rights, most, prefix_cache="hash")
    engine.add_request(request("r", [7, 7, 7], max_tokens=50))
    engine.step()
    (sequence,) = engine.scheduler.running
    for step in range(1, 6):
        (update,) = engine.step()
        assert len(update.new_token_ids) == gains
        assert update.num_accepted == gains - 1
        assert len(update.draft_token_ids) == most
        assert sequence.output_token_ids == expected_tokens([7, 7, 7], 1 + step * gains)
        assert sequence.num_computed == sequence.num_written == len(sequence) - 1
    kept = (5,) * (gains - 1) + (0,) * (most - gains + 1)
    assert engine.spec_stats == SpecStats(5, 5 * most, 5 * (gains - 1), kept)


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("rights", [RIGHT, WRONG])
def test_blocks_are_there_for_every_draft_and_go_back_if_it_was_wrong_b57(length, rights):
    """B57: 5 drafts may need two blocks more, at every place of a block of 4."""
    engine = make(rights, most=5)
    pool = engine.scheduler.blocks.pool
    engine.add_request(request("r", [1] * length, max_tokens=40))
    engine.step()
    (sequence,) = engine.scheduler.running
    for _ in range(5):
        engine.step()
        ((start, end),) = slices(engine)
        (table,) = engine.executor.submitted[-1].tables
        assert (end - start, len(table)) == (6, -(-end // 4))
        needed, most = -(-sequence.num_computed // 4), -(-len(sequence) // 4)
        assert needed <= len(sequence.block_table) <= most
        assert pool.num_free == pool.num_blocks - len(sequence.block_table)
    run(engine)
    assert sequence.output_token_ids == expected_tokens([1] * length, 40)
    check_idle(engine.scheduler)


def test_rows_with_four_drafts_with_one_and_with_none_go_together_b64():
    """B64: each behaves as plain decoding of its size, and nobody gets more than max_tokens."""
    engine = make(RIGHT, most=4)
    most = {"one": 1, "two": 2, "three": 3, "nine": 9}
    for name, max_tokens in most.items():
        engine.add_request(request(name, [3, 1, 4], max_tokens=max_tokens))
    tokens = run(engine)
    assert tokens == {name: expected_tokens([3, 1, 4], count) for name, count in most.items()}
    assert slices(engine, 1) == [(3, 4), (3, 5), (3, 8)]


@pytest.mark.parametrize("rights", [RIGHT, WRONG])
def test_drafts_are_clipped_to_the_context_limit_b65(rights):
    """B65: 29 tokens, 5 drafts, at most 32: so nothing is computed behind position 30."""
    engine = make(rights, most=5, max_model_len=32)
    engine.add_request(request("r", [1] * 29, max_tokens=10))
    updates = []
    while engine.has_unfinished:
        updates += engine.step()
    assert [t for u in updates for t in u.new_token_ids] == expected_tokens([1] * 29, 3)
    assert updates[-1].finish_reason is FinishReason.LENGTH
    ends = [end for step in engine.executor.submitted for _, end, _ in step.slices]
    assert max(ends) == 31
    check_idle(engine.scheduler)


@pytest.mark.parametrize(
    ("length", "num_blocks", "drafts"),
    [
        (3, 16, [4] * 8),
        (3, 11, [4] * 3 + [0] * 5),
        (3, 8, [0] * 8),
        (2, 8, [1] * 8),  # what is left of their own blocks
        (2, 9, [4] + [1] * 7),
    ],
)
def test_in_a_full_pool_there_are_fewer_drafts_and_nobody_gives_way_for_them_b67(
    length, num_blocks, drafts
):
    """B67: 8 sequences that would like 4 drafts each, whose blocks end with their own tokens."""
    engine = make(RIGHT, most=4, num_blocks=num_blocks, max_num_batched_tokens=64)
    given = {f"r{i}": [i] * length for i in range(8)}
    for name, prompt in given.items():
        engine.add_request(request(name, prompt, max_tokens=9))
    engine.step()
    sequences = list(engine.scheduler.running)
    engine.step()
    assert counts(engine) == drafts
    assert engine.scheduler.num_preemptions == 0
    run(engine)
    for sequence, prompt in zip(sequences, given.values(), strict=True):
        assert sequence.output_token_ids == expected_tokens(prompt, 9)
    check_idle(engine.scheduler)


def test_drafts_get_what_is_left_of_the_budget_and_no_prompt_waits_for_them():
    engine = make(RIGHT, most=4, max_num_batched_tokens=8)
    engine.add_request(request("decodes", [1, 2, 3], max_tokens=40))
    engine.step()
    engine.add_request(request("reads", [5] * 20, max_tokens=40))
    seen = []
    for _ in range(4):
        engine.step()
        seen.append([end - start for start, end in slices(engine)])
    # A chunk of 7 beside one token, twice; then 6 are left to read, and there is room for a draft.
    assert seen == [[1, 7], [1, 7], [2, 6], [5, 3]]


def test_newcomers_take_blocks_before_drafts_do():
    engine = make(RIGHT, most=4, num_blocks=4, max_num_batched_tokens=64)
    engine.add_request(request("here", [1, 2, 3], max_tokens=9))
    engine.step()
    engine.add_request(request("comes", [5] * 11, max_tokens=2))
    engine.step()
    assert slices(engine) == [(3, 4), (0, 11)]
    assert run(engine)["here"] == expected_tokens([1, 2, 3], 9)[2:]


def test_a_step_for_which_somebody_gave_way_has_no_drafts():
    """Its blocks were missing: drafts would take them from whoever is next."""
    engine = make(RIGHT, most=4, num_blocks=8, max_num_batched_tokens=64)
    for name in "abc":
        engine.add_request(request(name, [7, 7, 7, 7, 7], max_tokens=20))
    drafts = {False: 0, True: 0}
    while engine.has_unfinished:
        before = engine.scheduler.num_preemptions
        engine.step()
        drafts[engine.scheduler.num_preemptions > before] += sum(counts(engine))
    assert engine.scheduler.num_preemptions > 0
    assert drafts[True] == 0 < drafts[False]


@pytest.mark.parametrize("most", [3, 8])
def test_a_stop_token_ends_a_run_of_right_drafts_b50_b52(most):
    """B50, B52: it is the second of them; what is behind it is nobody's, and is not counted."""
    prompt = [3, 1, 4]
    tokens = expected_tokens(prompt, 12)
    eos = tokens[2]
    assert eos not in tokens[:2]
    engine = make(RIGHT, most, eos_token_ids=[eos], prefix_cache="radix")
    metrics = engine.add_request(request("r", prompt, max_tokens=12))
    engine.step()
    (update,) = engine.step()
    assert update.new_token_ids == tuple(tokens[1:3])
    assert update.finish_reason is FinishReason.STOP
    assert update.draft_token_ids == tuple(tokens[1 : most + 1])
    assert (metrics.num_output_tokens, metrics.num_accepted_tokens) == (3, 2)
    assert engine.spec_stats.num_accepted_tokens == 2
    check_idle(engine.scheduler)
    # The stop token's KV is there, so a turn that goes on from it finds the whole block.
    cached = engine.add_request(request("on", prompt + tokens[:3], max_tokens=3, ignore_eos=True))
    assert run(engine)["on"] == tokens[3:6]
    assert cached.num_cached_tokens == 4


@pytest.mark.parametrize("cache", ["hash", "radix"])
@pytest.mark.parametrize("ends", ["stop", "abort", "recompute", "swap"])
@pytest.mark.parametrize("most", [1, 5])
def test_wrong_drafts_that_fill_a_block_are_found_by_nobody_b58(cache, ends, most):
    """B58: position 7 is a draft's, and the last of its block; with 5, so is position 11."""
    prompt = [2, 7, 1, 8, 2, 8]
    engine = make(WRONG, most, prefix_cache=cache, num_host_blocks=8 if ends == "swap" else 0)
    stops = expected_tokens(prompt, 2)[1:] if ends == "stop" else []
    engine.add_request(request("first", prompt, max_tokens=20, stop_token_ids=stops))
    engine.step()
    (sequence,) = engine.scheduler.running
    engine.step()
    (made,) = engine.executor.guess.made
    assert len(made) == most
    if ends == "abort":
        engine.abort("first")
    elif ends != "stop":
        assert sequence.num_computed == 7
        engine.scheduler.preempt(sequence)
    others = {
        "wrong": prompt + expected_tokens(prompt, 1) + list(made) + [9] * 5,
        "right": prompt + expected_tokens(prompt, 6) + [9],
    }
    metrics = [engine.add_request(request(n, ids, max_tokens=6)) for n, ids in others.items()]
    tokens = run(engine)
    for name, ids in others.items():
        assert tokens[name] == expected_tokens(ids, 6)
    assert metrics[0].num_cached_tokens == 4
    assert sequence.output_token_ids == expected_tokens(prompt, len(sequence) - 6)
    check_idle(engine.scheduler)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("rights", [RIGHT, WRONG, LAST_OF_FOUR_WRONG], ids=str)
@pytest.mark.parametrize("cache", [None, "hash", "radix"])
def test_whoever_is_preempted_among_drafts_goes_on_as_if_undisturbed_b29(swap, rights, cache):
    """B29: after each step once; in tables and on the host nothing is left of the drafts."""
    for steps in range(1, 9):
        engine = make(rights, most=4, num_host_blocks=16 * swap, prefix_cache=cache)
        if swap:  # always, however little it is
            engine.scheduler.blocks.swap_space = SwapSpace(16)
        engine.add_request(request("other", [5, 6], max_tokens=20))
        engine.add_request(request("r", [3, 1, 4], max_tokens=50))
        for _ in range(steps):
            engine.step()
        sequence = engine.scheduler.running[-1]
        computed = sequence.num_computed
        engine.scheduler.preempt(sequence)
        assert sequence.block_table == []
        assert len(sequence.host_table) == (-(-computed // 4) if swap else 0)
        check_invariants(engine.scheduler)
        run(engine)
        assert sequence.num_preemptions == 1
        assert sequence.output_token_ids == expected_tokens([3, 1, 4], 50)
        check_idle(engine.scheduler)


@pytest.mark.parametrize("cache", [None, "hash", "radix"])
@pytest.mark.parametrize("length", [3, 4, 5, 8, 9])
@pytest.mark.parametrize("rights", [RIGHT, WRONG, 0.5], ids=str)
def test_siblings_have_drafts_of_their_own_and_copy_no_block_for_them(cache, length, rights):
    def served(rights):
        engine = make(rights, most=4, prefix_cache=cache, max_num_batched_tokens=64)
        engine.add_request(request("r", [3] * length, max_tokens=15, n=3))
        got = {0: [], 1: [], 2: []}
        while engine.has_unfinished:
            for update in engine.step():
                got[update.index] += update.new_token_ids
        assert got == {index: expected_tokens([3] * length, 15, index) for index in range(3)}
        check_idle(engine.scheduler)
        return engine

    plain, guessed = served(None), served(rights)
    assert guessed.spec_stats.num_drafts > 5
    copies = [
        sum(len(step.copies) for step in engine.executor.submitted) for engine in (plain, guessed)
    ]
    assert copies[0] == copies[1]


@pytest.mark.parametrize("cache", ["hash", "radix"])
@pytest.mark.parametrize(("block_size", "budget"), [(4, 7), (1, 16)])
def test_a_prompts_last_token_is_written_where_it_was_promised_drafts_or_not(
    cache, block_size, budget
):
    """It is computed alone, fills a block, and the block is in the cache before the step runs."""
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    engine = make(
        WRONG, most=3, block_size=block_size, max_num_batched_tokens=budget, prefix_cache=cache
    )
    for name in ("cold", "warm"):
        engine.add_request(request(name, prompt, max_tokens=6))
        assert run(engine)[name] == expected_tokens(prompt, 6)
    computed_alone = [
        step
        for step in engine.executor.submitted
        if step.slices[0][0] == 7 and step.drafts[0] and not step.copies
    ]
    assert computed_alone
    longer = engine.add_request(request("longer", [*prompt, 9], max_tokens=6))
    assert run(engine)["longer"] == expected_tokens([*prompt, 9], 6)
    assert longer.num_cached_tokens == 8


@pytest.mark.parametrize("scheduler", [StaticScheduler, DynamicScheduler])
@pytest.mark.parametrize("rights", [RIGHT, WRONG, 0.6], ids=str)
def test_a_fixed_batch_has_blocks_for_its_drafts_in_what_was_reserved(scheduler, rights):
    engine = make(rights, most=6, scheduler=scheduler, num_blocks=20, max_num_seqs=4)
    given = prompts(10, longest=12)
    for index, prompt in enumerate(given):
        engine.add_request(request(f"r{index}", prompt, max_tokens=3 + 2 * index))
    tokens = run(engine)
    for index, prompt in enumerate(given):
        assert tokens[f"r{index}"] == expected_tokens(prompt, 3 + 2 * index)
    assert engine.scheduler.num_preemptions == 0
    assert engine.spec_stats.num_drafts > 10
    check_idle(engine.scheduler)


class Breaks(DeferredExecutor):
    """The first step with drafts fails, or its first sequence alone does."""

    whole = True
    broken = None

    def run_one(self):
        step = self.queue[0]
        if self.broken is not None or not any(step.drafts):
            return super().run_one()
        self.broken = step
        if self.whole:
            self.queue.popleft()
            raise MemoryError("the device is full")
        super().run_one()
        spoilt = SequenceOutput(draft_token_ids=step.drafts[0], error="not finite")
        step.result = StepResult((spoilt, *step.result.outputs[1:]))


@pytest.mark.parametrize("cache", [None, "hash", "radix"])
def test_a_step_that_fails_with_its_drafts_ends_its_own_sequences_alone(cache):
    engine = make(RIGHT, executor=Breaks, prefix_cache=cache, max_num_seqs=2)
    for index, name in enumerate(("one", "two", "later")):
        engine.add_request(request(name, [index, 2, 3, 4, 5], max_tokens=9))
    engine.step()
    failed = list(engine.scheduler.running)
    with pytest.raises(MemoryError):
        engine.step()
    assert [s.finish_reason for s in failed] == [FinishReason.ERROR] * 2
    assert run(engine) == {"later": expected_tokens([2, 2, 3, 4, 5], 9)}
    check_idle(engine.scheduler)


@pytest.mark.parametrize("cache", [None, "hash", "radix"])
def test_a_sequence_that_fails_among_drafts_ends_alone_and_leaves_nothing_b68(cache):
    """B68: what it wrote in that step, drafts and all, is not to be trusted."""
    engine = make(RIGHT, executor=Breaks, prefix_cache=cache)
    engine.executor.whole = False
    for index, name in enumerate(("bad", "good")):
        engine.add_request(request(name, [index, 2, 3, 4, 5], max_tokens=9))
    engine.step()
    bad, good = engine.scheduler.running
    first, second = engine.step()
    assert (first.sequence, first.finish_reason, first.new_token_ids) == (bad, "error", ())
    assert second.finish_reason is None
    run(engine)
    assert good.output_token_ids == expected_tokens([1, 2, 3, 4, 5], 9)
    check_idle(engine.scheduler)


def test_whoever_leaves_among_drafts_leaves_nothing():
    for steps in range(1, 6):
        engine = make(0.5, most=4, prefix_cache="hash")
        engine.add_request(request("gone", [1] * 5, max_tokens=50, n=2))
        engine.add_request(request("stays", [2] * 5, max_tokens=9))
        for _ in range(steps):
            engine.step()
        stays = next(s for s in engine.scheduler.running if s.request.request_id == "stays")
        assert engine.abort("gone")
        check_invariants(engine.scheduler)
        run(engine)
        assert stays.output_token_ids == expected_tokens([2] * 5, 9)
        check_idle(engine.scheduler)


def test_an_executor_need_not_guess_and_what_it_leaves_empty_was_not_computed():
    records = []
    engine = make(None, on_step=records.append)
    engine.record = ScheduleRecord(engine.scheduler)
    engine.add_request(request("r", [1, 2, 3], max_tokens=6))
    assert run(engine)["r"] == expected_tokens([1, 2, 3], 6)
    assert [record.num_tokens for record in records] == [3, 1, 1, 1, 1, 1]
    assert [record.tokens_stored for record in records] == [3, 4, 5, 6, 7, 8]
    assert sum(span.num_tokens * span.num_steps for span in engine.record.spans()) == 8
    assert engine.spec_stats == SpecStats()


def test_an_observer_sees_what_was_computed_and_what_came_of_it():
    records = []
    engine = make([True, True, False], most=3, on_step=records.append)
    engine.record = ScheduleRecord(engine.scheduler)
    engine.add_request(request("r", [1, 2, 3], max_tokens=9))
    run(engine)
    assert [record.num_tokens for record in records] == [3, 4, 4, 2]
    assert [record.num_sampled for record in records] == [1, 3, 3, 2]
    spans = [(s.first_step, s.start, s.num_tokens, s.num_steps) for s in engine.record.spans()]
    assert spans == [(0, 0, 3, 1), (1, 3, 4, 1), (2, 6, 4, 1), (3, 9, 2, 1)]


class Listens(AnyLengths):
    """Notes down what it is asked."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked = []

    def choose(self, rooms, num_other_tokens):
        names = {sequence.request.request_id: room for sequence, room in rooms.items()}
        self.asked.append((names, num_other_tokens))
        self.known.update(rooms)
        return {sequence: min(room, 2) for sequence, room in rooms.items()}


def test_who_decides_is_told_of_everybody_who_decodes_and_what_became_of_it():
    lengths = Listens()
    engine = make_engine(
        lengths=lengths, guess=Guesser([True, False]), max_num_batched_tokens=12, max_num_seqs=3
    )
    engine.add_request(request("a", [1, 2, 3], max_tokens=6))
    engine.step()
    engine.add_request(request("b", [4] * 9, max_tokens=3))
    engine.step()
    room = 5 - len(engine.scheduler.running[0].output_token_ids)
    engine.step()
    assert lengths.asked[:2] == [({"a": 2}, 9), ({"a": room, "b": 1}, 0)]
    run(engine)
    assert lengths.noted
    assert not lengths.known  # it has forgotten all who have ended
    assert engine.spec_stats.num_drafts == len(lengths.noted)
    assert engine.spec_stats.num_accepted_tokens == sum(kept for _, kept in lengths.noted)


def test_the_most_important_have_drafts_first():
    engine = make(RIGHT, most=4, scheduler=partial(ContinuousScheduler, policy=Priority()))
    for name, priority in (("low", 1), ("high", 0)):
        engine.add_request(request(name, [1, 2, 3], max_tokens=20, priority=priority))
    engine.scheduler.max_num_batched_tokens = 7
    engine.step()
    engine.step()
    first = engine.executor.submitted[-1]
    assert [s.request.request_id for s in first.sequences] == ["high", "low"]
    assert counts(engine) == [4, 1]


def make_manager(num_blocks):
    manager, sequence = BlockManager(BlockPool(num_blocks), block_size=4), None
    sequence = Sequence(request("r", [1] * 5))
    manager.grow(sequence, 5)
    return manager, sequence


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(5, 2), (8, 2), (9, 3), (16, 4)])
def test_a_table_is_extended_for_drafts_and_trimmed_to_what_the_sequence_has(
    num_tokens, num_blocks
):
    manager, sequence = make_manager(4)
    before = list(sequence.block_table)
    manager.extend(sequence, num_tokens)
    assert len(sequence.block_table) == num_blocks
    manager.trim(sequence)
    assert sequence.block_table == before
    assert manager.pool.num_free == 2


def test_a_table_that_cannot_be_extended_stays_as_it_is_b10():
    manager, sequence = make_manager(3)
    with pytest.raises(OutOfBlocks, match="2 blocks asked for, 1 free"):
        manager.extend(sequence, 13)
    assert (len(sequence.block_table), manager.pool.num_free) == (2, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": False, "num_drafts": 1, "num_tokens": 2}, "wrong 'samples'"),
        ({"num_drafts": 3, "num_tokens": 4}, "drafts past the end"),
        ({"num_drafts": 2, "num_tokens": 2}, "nothing but drafts"),
        ({"num_drafts": 1, "num_tokens": 2}, "has blocks for 4 tokens only"),
    ],
)
def test_a_step_with_impossible_drafts_is_caught(change, message):
    engine = make_engine(block_size=4)
    engine.add_request(request("r", [1, 2, 3], max_tokens=4))
    engine.step()
    batch = engine.scheduler.schedule()
    (item,) = batch.scheduled
    check_batch(engine.scheduler, batch)
    with pytest.raises(InvariantViolation, match=message):
        check_batch(engine.scheduler, Batch((replace(item, **change),)))


def test_blocks_that_drafts_leave_behind_are_caught():
    engine = make(WRONG)
    engine.scheduler.blocks.trim = lambda sequence: None
    engine.add_request(request("r", [1, 2, 3], max_tokens=20))
    engine.step()
    with pytest.raises(InvariantViolation, match="1 blocks more than it has tokens for"):
        engine.step()


def test_a_token_from_the_wrong_row_would_be_noticed_b56():
    """B56: the oracle can fail. Here a refused draft is followed by the row behind it."""

    class OffByOne(OracleExecutor):
        def _output(self, item):
            output = super()._output(item)
            if not item.draft_token_ids or output.num_accepted == len(item.draft_token_ids):
                return output
            return replace(output, token_ids=(*output.token_ids[:-1], output.token_ids[-1] + 1))

    engine = make(WRONG, executor=OffByOne)
    engine.add_request(request("r", [1, 2, 3], max_tokens=9))
    assert run(engine)["r"] != expected_tokens([1, 2, 3], 9)
