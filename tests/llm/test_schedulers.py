"""The schedulers on a real model: the same tokens from all of them, whoever waits or gives way.

In float64 a token does not depend on who else was in its batch: answers are compared exactly.
"""

import pytest

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import Overloaded, Priority, ScheduleRecord
from minillm_serve.core.invariants import check_idle
from tests.models.tiny import prompt

PROMPTS = [prompt(2 + (11 * i) % 30, seed=i) for i in range(12)]
PARAMS = [
    SamplingParams(max_tokens=3 + (5 * i) % 17, ignore_eos=True, seed=i, temperature=i % 3)
    for i in range(12)
]


@pytest.fixture(scope="module")
def make(tiny_dir):
    def build(**options):
        options = {"dtype": "float64", "block_size": 4, "num_blocks": 100, **options}
        llm = LLM(tiny_dir, debug_invariants=True, **options)
        llm.engine.record = ScheduleRecord(llm.engine.scheduler)
        return llm

    return build


def answers(llm, **options):
    outputs = llm.generate(PROMPTS, PARAMS, use_tqdm=False, **options)
    check_idle(llm.engine.scheduler)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def solo(make):
    llm = make(max_num_seqs=1)
    return [
        llm.generate(ids, params, use_tqdm=False)[0].outputs[0].token_ids
        for ids, params in zip(PROMPTS, PARAMS, strict=True)
    ]


def test_three_schedulers_give_the_same_tokens_and_rank_as_the_theory_says(make, solo):
    used, steps = {}, {}
    for name in ("static", "dynamic", "continuous"):
        llm = make(scheduler=name, max_num_seqs=4)
        assert answers(llm) == solo
        used[name], steps[name] = llm.engine.record.slot_utilisation, len(llm.engine.record)
    # All have come when the first batch begins, so here dynamic is static.
    assert used["static"] == used["dynamic"] < used["continuous"]
    assert steps["static"] == steps["dynamic"] > steps["continuous"]


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("scheduler", ["static", "dynamic", "continuous"])
@pytest.mark.parametrize("policy", ["priority", "sjf", Priority(ageing=2)])
def test_no_order_changes_an_answer(make, solo, scheduler, policy, overlapped):
    llm = make(scheduler=scheduler, policy=policy, max_num_seqs=3, async_scheduling=overlapped)
    assert answers(llm, priority=[i % 4 for i in range(12)]) == solo


def test_the_important_begin_first(make):
    llm = make(policy="priority", max_num_seqs=1)
    order = [3, 1, 2, 0]
    llm.generate(PROMPTS[:4], PARAMS[:4], priority=order, use_tqdm=False)
    began = dict.fromkeys(span.request_id for span in llm.engine.record.spans())
    assert list(began) == ["llm-4", "llm-2", "llm-3", "llm-1"]


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("preemption", ["swap", "recompute", "auto"])
def test_no_kind_of_preemption_changes_an_answer(make, solo, preemption, overlapped):
    llm = make(num_blocks=16, swap_space=2**20, preemption=preemption, async_scheduling=overlapped)
    assert answers(llm) == solo
    scheduler = llm.engine.scheduler
    assert scheduler.num_preemptions > 0
    if preemption == "swap":
        assert scheduler.num_swaps == scheduler.num_preemptions
    if preemption == "recompute":
        assert scheduler.num_swaps == 0


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
def test_log_probabilities_of_a_prompt_outlive_a_preemption_half_way_through_it_b98(
    make, preemption
):
    params = SamplingParams(temperature=0, max_tokens=20, prompt_logprobs=1, ignore_eos=True)
    asked = [prompt(length, seed=length) for length in (12, 12, 40)]

    def told(llm):
        """Ranks, and log probabilities but for the last digits: those hang on the batch."""
        return [
            [{t: (round(p.logprob, 9), p.rank) for t, p in (place or {}).items()} for place in out]
            for out in (o.prompt_logprobs for o in llm.generate(asked, params, use_tqdm=False))
        ]

    # The long prompt has all its blocks, and is read slowly, while the others outgrow theirs.
    tight = make(num_blocks=17, max_num_batched_tokens=3, swap_space=2**20, preemption=preemption)
    assert told(tight) == told(make())
    cut = {one.request_id: one.step for one in tight.engine.record.preemptions()}
    prefill = [s for s in tight.engine.record.spans() if s.request_id == "llm-3" and s.start < 39]
    assert prefill[0].first_step < cut["llm-3"] < prefill[-1].first_step


def test_a_crowd_too_large_for_the_queue_is_refused_whole(make):
    llm = make(max_num_waiting=5)
    with pytest.raises(Overloaded, match="5 wait already"):
        answers(llm)
    assert not llm.engine.has_unfinished
    check_idle(llm.engine.scheduler)


def test_a_stream_does_not_wait_for_a_batch_that_nobody_will_fill(make):
    llm = make(scheduler="static", max_num_seqs=8)
    first, second = (
        llm.stream(ids, SamplingParams(max_tokens=5, temperature=0)) for ids in PROMPTS[:2]
    )
    pieces = [list(stream) for stream in (first, second)]
    assert all(pieces)
    check_idle(llm.engine.scheduler)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scheduler": "lottery"}, r"scheduler='lottery' is unknown.*continuous.*static.*dynamic"),
        ({"policy": "mine"}, r"policy='mine' is unknown.*fcfs.*priority.*sjf"),
        ({"preemption": "never"}, r"preemption='never' is unknown"),
        ({"preemption": "swap"}, r"preemption='swap' needs room: give swap_space"),
        ({"swap_space": -1}, r"swap_space=-1"),
        ({"swap_space": 100}, r"swap_space=100 bytes holds no block: one takes \d+ bytes"),
        ({"swap_space": 2**60}, r"GiB of host memory are free"),
        ({"max_num_waiting": 0}, r"max_num_waiting=0"),
        ({"max_queue_delay": 1.0}, r"max_queue_delay=1\.0.*'static' or 'dynamic'"),
        ({"scheduler": "static", "max_queue_delay": -1.0}, r"max_queue_delay=-1\.0"),
    ],
)
def test_bad_arguments_are_named_with_the_remedy(make, options, said):
    with pytest.raises(ValueError, match=said):
        make(**options)


def test_priorities_must_be_as_many_as_prompts(make):
    with pytest.raises(ValueError, match="2 priorities for 12 prompts"):
        answers(make(), priority=[1, 2])
