"""Continuous scheduling: budget, chunks, order, preemption. Ids are those of HAZARDS."""

import pytest

from minillm_serve.core import (
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    FinishReason,
    Request,
    SamplingParams,
    Sequence,
    SequenceOutput,
    SequenceStatus,
    StepResult,
)
from minillm_serve.core.invariants import check_batch, check_idle, check_invariants


def make_scheduler(num_blocks=64, block_size=4, seqs=8, budget=16, max_len=None):
    blocks = BlockManager(BlockPool(num_blocks), block_size)
    return ContinuousScheduler(
        blocks,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_len=max_len or blocks.capacity,
    )


def add(scheduler, num_tokens, max_tokens=50, name=None):
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    name = name or f"r{scheduler.num_unfinished}"
    sequence = Sequence(Request(request_id=name, prompt_token_ids=(1,) * num_tokens, params=params))
    scheduler.add(sequence)
    return sequence


def step(scheduler, token=5):
    batch = scheduler.schedule()
    check_batch(scheduler, batch)
    outputs = [SequenceOutput((token,) if s.samples else ()) for s in batch.scheduled]
    updates = scheduler.commit(batch, StepResult(tuple(outputs)))
    check_invariants(scheduler)
    return batch, updates


def plan(batch):
    return [(s.sequence.request.request_id, s.start, s.num_tokens) for s in batch.scheduled]


def test_a_prompt_within_the_budget_is_computed_in_one_step():
    scheduler = make_scheduler()
    add(scheduler, 10)
    batch, updates = step(scheduler)
    assert plan(batch) == [("r0", 0, 10)]
    assert updates[0].new_token_ids == (5,)


def test_a_long_prompt_is_chunked_beside_the_decodes_of_others():
    scheduler = make_scheduler(budget=8)
    add(scheduler, 4)
    step(scheduler)
    add(scheduler, 20)
    plans = [plan(step(scheduler)[0]) for _ in range(4)]
    assert plans == [
        [("r0", 4, 1), ("r1", 0, 7)],
        [("r0", 5, 1), ("r1", 7, 7)],
        [("r0", 6, 1), ("r1", 14, 6)],
        [("r0", 7, 1), ("r1", 20, 1)],
    ]


def test_no_token_comes_out_before_the_last_chunk_b36():
    scheduler = make_scheduler(budget=8)
    add(scheduler, 40)
    updates = [step(scheduler)[1] for _ in range(5)]
    assert [len(u) for u in updates] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("num_tokens", [7, 8, 9, 16, 17])
def test_no_chunk_is_ever_empty_b35_b40(num_tokens):
    scheduler = make_scheduler(budget=8)
    add(scheduler, num_tokens, max_tokens=1)
    sizes = []
    while scheduler.num_unfinished:
        sizes += [s.num_tokens for s in step(scheduler)[0].scheduled]
    assert sum(sizes) == num_tokens
    assert min(sizes) >= 1


def test_requests_are_served_in_order_of_arrival():
    scheduler = make_scheduler(seqs=2)
    for _ in range(4):
        add(scheduler, 2, max_tokens=1)
    order = []
    while scheduler.num_unfinished:
        order.append([name for name, _, _ in plan(step(scheduler)[0])])
    assert order == [["r0", "r1"], ["r2", "r3"]]


def test_a_slot_is_refilled_in_the_step_after_it_became_free():
    scheduler = make_scheduler(seqs=2)
    add(scheduler, 2, max_tokens=1)
    add(scheduler, 2)
    add(scheduler, 2)
    step(scheduler)
    assert [name for name, _, _ in plan(step(scheduler)[0])] == ["r1", "r2"]


def test_the_youngest_is_preempted_and_resumes_first_b32():
    scheduler = make_scheduler(num_blocks=4, budget=16)
    old, young = add(scheduler, 7), add(scheduler, 7)
    later = add(scheduler, 1)
    step(scheduler)
    assert [old.status, young.status] == [SequenceStatus.RUNNING] * 2
    step(scheduler)  # both fill their second block; the next step needs two more
    batch, _ = step(scheduler)
    assert plan(batch) == [("r0", 8, 1), *plan(batch)[1:]] or batch.preempted
    while not young.num_preemptions:
        batch, _ = step(scheduler)
    assert batch.preempted == (young,)
    assert (young.num_computed, young.block_table) == (0, [])
    assert scheduler.waiting.head() is young
    assert later.status is SequenceStatus.WAITING


def test_a_resumed_sequence_computes_prompt_and_output_again_b32():
    scheduler = make_scheduler(num_blocks=5, budget=64)
    old, young = add(scheduler, 8, max_tokens=5), add(scheduler, 8)
    while not young.num_preemptions:
        step(scheduler)
    length = len(young)
    assert length > 8
    while old.status is not SequenceStatus.FINISHED:
        step(scheduler)
    batch, updates = step(scheduler)
    assert plan(batch) == [("r1", 0, length)]
    assert updates[0].new_token_ids == (5,)


def test_a_scheduled_sequence_is_never_a_victim_b28():
    scheduler = make_scheduler(num_blocks=6, block_size=2, seqs=6, budget=64)
    for _ in range(6):
        add(scheduler, 2)
    for _ in range(40):
        batch = scheduler.schedule()
        planned = {id(s.sequence) for s in batch.scheduled}
        assert not planned & {id(s) for s in batch.preempted}
        check_batch(scheduler, batch)
        outputs = [SequenceOutput((5,) if s.samples else ()) for s in batch.scheduled]
        scheduler.commit(batch, StepResult(tuple(outputs)))
        if not scheduler.num_unfinished:
            return


def test_ten_sequences_at_a_block_edge_and_two_free_blocks_b34():
    scheduler = make_scheduler(num_blocks=12, block_size=16, seqs=10, budget=512, max_len=100)
    sequences = [add(scheduler, 15) for _ in range(10)]
    step(scheduler)  # ten sequences of 16 tokens, ten blocks used, two free
    batch, _ = step(scheduler)
    assert len(batch.scheduled) == 10
    batch, _ = step(scheduler)  # each wants a second block
    assert batch.preempted
    assert len(batch.scheduled) + len(batch.preempted) == len(sequences)


def test_a_prompt_that_does_not_fit_whole_is_not_started_b31():
    scheduler = make_scheduler(num_blocks=10, block_size=4, budget=8, max_len=40)
    add(scheduler, 20)
    step(scheduler)
    waiting = add(scheduler, 36)
    for _ in range(4):
        step(scheduler)
    assert waiting.status is SequenceStatus.WAITING
    assert scheduler.num_preemptions == 0


def test_nobody_is_preempted_while_blocks_are_free_b46():
    scheduler = make_scheduler(num_blocks=64, block_size=4, budget=512)
    add(scheduler, 120, max_tokens=20)
    add(scheduler, 50, max_tokens=20)
    while scheduler.num_unfinished:
        batch, _ = step(scheduler)
        assert len(batch.scheduled) == 2
    assert scheduler.num_preemptions == 0


def test_a_sequence_alone_that_fills_the_pool_ends_with_length_b25():
    scheduler = make_scheduler(num_blocks=2, block_size=4)
    sequence = add(scheduler, 6, max_tokens=None)
    for _ in range(2):
        step(scheduler)
    assert sequence.finish_reason is FinishReason.LENGTH
    assert len(sequence) == 8
    check_idle(scheduler)


def test_the_stop_token_ends_a_sequence_and_is_kept():
    scheduler = make_scheduler()
    params = SamplingParams(stop_token_ids=[5], max_tokens=9)
    sequence = Sequence(Request(request_id="r", prompt_token_ids=(1, 2), params=params))
    scheduler.add(sequence)
    _, updates = step(scheduler)
    assert updates[0].finish_reason is FinishReason.STOP
    assert sequence.output_token_ids == [5]


def test_tokens_after_the_stop_token_are_dropped_b50():
    scheduler = make_scheduler()
    params = SamplingParams(stop_token_ids=[5], max_tokens=9)
    scheduler.add(Sequence(Request(request_id="r", prompt_token_ids=(1, 2), params=params)))
    batch = scheduler.schedule()
    (update,) = scheduler.commit(batch, StepResult((SequenceOutput((3, 5, 7)),)))
    assert update.new_token_ids == (3, 5)


def test_a_sequence_that_fails_ends_alone_b68():
    scheduler = make_scheduler()
    bad, good = add(scheduler, 3), add(scheduler, 3)
    batch = scheduler.schedule()
    outputs = (SequenceOutput(error="NaN"), SequenceOutput((5,)))
    updates = scheduler.commit(batch, StepResult(outputs))
    assert [u.finish_reason for u in updates] == [FinishReason.ERROR, None]
    assert (bad.error, bad.block_table) == ("NaN", [])
    assert good.status is SequenceStatus.RUNNING
    check_invariants(scheduler)


def test_a_sequence_aborted_during_its_step_is_passed_over_b44():
    scheduler = make_scheduler()
    gone, stays = add(scheduler, 3), add(scheduler, 3)
    batch = scheduler.schedule()
    scheduler.finish(gone, FinishReason.ABORT)
    newcomer = add(scheduler, 3)
    updates = scheduler.commit(batch, StepResult((SequenceOutput((5,)),) * 2))
    assert [u.sequence for u in updates] == [stays]
    assert len(gone) == 3
    check_invariants(scheduler)
    assert newcomer in list(scheduler.waiting)


@pytest.mark.parametrize("max_len", [1, 257])
def test_a_max_len_beyond_the_pool_is_refused(max_len):
    with pytest.raises(ValueError, match=f"max_len={max_len}.*capacity of 256"):
        make_scheduler(num_blocks=64, block_size=4, max_len=max_len)


@pytest.mark.parametrize("limit", ["seqs", "budget"])
def test_limits_below_one_are_refused(limit):
    with pytest.raises(ValueError, match="expected at least 1"):
        make_scheduler(**{limit: 0})
