"""Who goes first, who gives way, and that nobody starves. Counted in arrivals and steps."""

from functools import partial

import pytest

from minillm_serve.core import (
    BlockManager,
    BlockPool,
    ContinuousScheduler,
    FirstComeFirstServed,
    Priority,
    Request,
    SamplingParams,
    Sequence,
    SequenceOutput,
    SequenceStatus,
    ShortestFirst,
    StaticScheduler,
    StepResult,
)
from minillm_serve.core.invariants import check_batch, check_invariants


def make(policy, *, kind=ContinuousScheduler, num_blocks=64, seqs=1, budget=16):
    blocks = BlockManager(BlockPool(num_blocks), 4)
    return kind(
        blocks,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_len=blocks.capacity,
        policy=policy,
    )


def add(scheduler, name, num_tokens=2, *, priority=0, max_tokens=1):
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    sequence = Sequence(
        Request(
            request_id=name,
            prompt_token_ids=(1,) * num_tokens,
            params=params,
            priority=priority,
        )
    )
    scheduler.add(sequence)
    return sequence


def step(scheduler):
    batch = scheduler.schedule()
    check_batch(scheduler, batch)
    outputs = [SequenceOutput((5,) if item.samples else ()) for item in batch.scheduled]
    scheduler.commit(batch, StepResult(tuple(outputs)))
    check_invariants(scheduler)
    return batch


def names(batch):
    return [item.sequence.request.request_id for item in batch.scheduled]


def order(scheduler):
    served = []
    while scheduler.num_unfinished:
        served += names(step(scheduler))
    return served


@pytest.mark.parametrize("kind", [ContinuousScheduler, StaticScheduler])
def test_each_policy_has_its_order_under_every_scheduler(kind):
    def served(policy):
        scheduler = make(policy, kind=kind)
        add(scheduler, "long", 9, priority=1)
        add(scheduler, "urgent", 5, priority=-1)
        add(scheduler, "short", 1, priority=1)
        return [name for name in dict.fromkeys(order(scheduler))]

    assert served(FirstComeFirstServed()) == ["long", "urgent", "short"]
    assert served(Priority()) == ["urgent", "long", "short"]
    assert served(ShortestFirst()) == ["short", "urgent", "long"]


def test_a_request_that_may_go_on_for_ever_is_the_longest():
    scheduler = make(ShortestFirst())
    endless = add(scheduler, "endless", 1, max_tokens=None)
    add(scheduler, "long", 50)
    assert scheduler.waiting.head() is not endless


def steps_until_served(ageing, *, limit=500):
    """One unimportant request, and two important ones a step where one can be served."""
    scheduler = make(Priority(ageing))
    last = add(scheduler, "last", priority=3)
    for number in range(limit):
        add(scheduler, f"a{number}", priority=0)
        add(scheduler, f"b{number}", priority=1)
        step(scheduler)
        if last.status is SequenceStatus.FINISHED:
            return number
    return None


def test_without_ageing_the_unimportant_starve():
    assert steps_until_served(None) is None


def test_with_ageing_they_are_served_after_a_number_of_newcomers_that_is_known():
    # Of those at priority 0 at most 3 * ageing come first, of those at 1 at most 2 * ageing; one is
    # served a step, and of the newcomers every other one is of each kind.
    for ageing in (5, 20):
        steps = steps_until_served(ageing)
        assert ageing < steps <= 3 * ageing
    assert steps_until_served(5) < steps_until_served(20)


def test_nobody_of_any_priority_is_overtaken_more_often_than_promised():
    ageing, scheduler = 4, make(Priority(4))
    for number in range(120):
        add(scheduler, f"{number}", priority=number * 7 % 4)
    served = [int(name) for name in order(scheduler)]
    for place, number in enumerate(served):
        overtakers = [other for other in served[:place] if other > number]
        for priority in range(4):
            count = sum(other * 7 % 4 == priority for other in overtakers)
            assert count <= max(0, ageing * (number * 7 % 4 - priority))


def test_the_least_important_gives_way_and_not_one_that_is_scheduled_already_b28():
    # Four blocks of 4: at a block's edge all of them want another block, and there is none.
    scheduler = make(Priority(), num_blocks=4, seqs=4, budget=64)
    low = add(scheduler, "low", 4, priority=5, max_tokens=8)
    step(scheduler)
    high = add(scheduler, "high", 7, priority=-1, max_tokens=8)
    step(scheduler)
    assert scheduler.running == [high, low]
    while not scheduler.num_preemptions:
        batch = step(scheduler)
    assert batch.preempted == (low,)
    assert names(batch) == ["high"]
    assert high.num_preemptions == 0


def test_a_preempted_sequence_keeps_its_place_before_all_who_came_later():
    scheduler = make(FirstComeFirstServed(), num_blocks=4, seqs=4, budget=64)
    add(scheduler, "old", 7, max_tokens=9)
    young = add(scheduler, "young", 7, max_tokens=9)
    later = add(scheduler, "later", 1, max_tokens=9)
    while not young.num_preemptions:
        step(scheduler)
    assert list(scheduler.waiting) == [young, later]


def gaps(scheduler, newcomers):
    """Steps and tokens between two tokens of one request, while long prompts keep coming."""
    typing = add(scheduler, "typing", 3, max_tokens=40)
    steps, tokens, worst = 0, 0, (0, 0)
    step(scheduler)
    while typing.status is not SequenceStatus.FINISHED:
        newcomers(scheduler)
        batch = step(scheduler)
        steps, tokens = steps + 1, tokens + batch.num_tokens
        if typing.request.request_id in names(batch):
            worst = max(worst, (steps, tokens))
            steps = tokens = 0
    return worst


@pytest.mark.parametrize("budget", [16, 64, 256])
@pytest.mark.parametrize("priority", [0, -9])
def test_a_flood_of_long_prompts_delays_no_token_by_more_than_the_budget(budget, priority):
    scheduler = make(Priority(), num_blocks=10_000, seqs=8, budget=budget)

    def flood(scheduler):
        add(scheduler, f"flood {next(numbers)}", 200, priority=priority, max_tokens=2)

    numbers = iter(range(10_000))
    steps, tokens = gaps(scheduler, flood)
    assert steps == 1
    assert tokens <= budget


def test_without_chunks_a_gap_is_as_long_as_the_prompts():
    """The oracle can tell: a batch that reads whole prompts has the gap that chunks take away."""
    scheduler = make(Priority(), num_blocks=10_000, seqs=8, budget=1600)
    numbers = iter(range(10_000))
    crowd = partial(add, max_tokens=2)
    _, tokens = gaps(scheduler, lambda s: [crowd(s, f"{next(numbers)}", 200) for _ in range(9)])
    assert tokens > 1000


@pytest.mark.parametrize("ageing", [0, -1, float("nan")])
def test_ageing_must_be_above_zero(ageing):
    with pytest.raises(ValueError, match="ageing"):
        Priority(ageing)


@pytest.mark.parametrize("priority", [1.5, "high", None])
def test_a_priority_is_a_whole_number(priority):
    with pytest.raises(ValueError, match="priority"):
        Request(request_id="r", prompt_token_ids=(1,), priority=priority)


def test_a_sequence_may_be_scheduled_only_once_and_waits_in_one_place_only():
    scheduler = make(FirstComeFirstServed(), seqs=3, budget=64)
    sequences = [add(scheduler, name, max_tokens=3) for name in "abc"]
    batch = step(scheduler)
    assert names(batch) == ["a", "b", "c"]
    assert scheduler.running == sequences
    assert not list(scheduler.waiting)
