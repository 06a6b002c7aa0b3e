"""Chapter 05's scene: whatever comes, the budget bounds what is computed between two tokens."""

import random

import pytest

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import ScheduleRecord
from minillm_serve.course.chapter05 import counters, stall, systems, tradeoff
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.simulation import Simulation

COST = systems.cost_of(systems.START)


@pytest.mark.parametrize("budget", [48, 64, 256, 1024, 8192])
@pytest.mark.parametrize("prompts", [[1500], [200] * 40, [1, 4000, 17]], ids=str)
def test_between_two_tokens_of_a_user_no_more_than_the_budget_is_computed(
    budget: int, prompts: list[int]
) -> None:
    seen = stall.simulated(COST, budget, users=4, prompts=prompts)
    work = [
        counters.work_between(seen.record, f"typist-{i}", stall.TYPIST_PROMPT) for i in range(4)
    ]
    assert max(map(max, work)) == seen.most_work_between <= budget
    # The bound is met: there is more to do than one budget, or all of it at once.
    assert seen.most_work_between == min(budget, sum(prompts) + 4)


def test_without_a_bound_the_flood_comes_between_two_tokens() -> None:
    seen = stall.simulated(COST, 16384, users=1, prompts=[200] * 40)
    assert seen.most_work_between == 8001


def test_a_smaller_budget_has_shorter_gaps_and_a_later_first_token() -> None:
    scenes = [stall.simulated(COST, budget, 8, [4096]) for budget in (4096, 1024, 256, 64)]
    gaps, firsts = [s.longest_gap for s in scenes], [s.ttft for s in scenes]
    assert gaps == sorted(gaps, reverse=True)
    assert firsts == sorted(firsts)
    assert all(scene.usual_gap < scene.longest_gap for scene in scenes)


def test_times_are_counted_from_when_the_newcomers_came() -> None:
    seen = stall.simulated(COST, 512, users=2, prompts=[600])
    (newcomer,) = seen.newcomers
    assert newcomer.arrival == 0.0
    assert newcomer.times[0] == pytest.approx(seen.ttft)
    assert len(newcomer.times) == stall.AFTER
    typed_before = [t for t in seen.typists[0].times if t <= 0]
    assert len(typed_before) == stall.BEFORE
    began = list(seen.record.began)[seen.came_at_step]
    assert began - seen.began == pytest.approx(0.0, abs=1e-12)


def test_the_stage_is_empty_afterwards_and_refuses_an_empty_scene() -> None:
    engine = Simulation(COST, num_blocks=200).engine
    stall.play(engine, 3, [40])
    assert not engine.has_unfinished
    assert engine.record is None
    with pytest.raises(ValueError, match=r"users=0, prompts=\[5\]: somebody must type"):
        stall.play(engine, 0, [5])
    with pytest.raises(ValueError, match=r"prompts=\[\]"):
        stall.play(engine, 2, [])
    engine.scheduler.max_num_batched_tokens = 3
    with pytest.raises(ValueError, match=r"max_num_batched_tokens=3: 4 people who type"):
        stall.play(engine, 3, [5])


def test_the_work_of_a_record_is_what_the_cost_model_charged() -> None:
    seen = stall.simulated(COST, 100, users=3, prompts=[350, 20])
    assert [COST.seconds(work) for work, _ in seen.steps()] == pytest.approx(
        [seconds for _, seconds in seen.steps()]
    )
    assert sum(work.samples for work, _ in seen.steps()) == sum(map(len, seen.token_ids.values()))
    assert [work.tokens for work, _ in seen.steps()] == counters.tokens_per_step(seen.record)


def test_tokens_that_are_computed_again_are_not_counted_as_new_ones() -> None:
    """A preempted user gets as many tokens as others, and one gap that no budget bounds."""
    simulation = Simulation(COST, num_blocks=12, max_num_batched_tokens=64)
    engine = simulation.engine
    stage = stall.Stage(engine)
    names = [stage.add(f"typist-{i}", 40, random.Random(0)) for i in range(3)]
    stage.run_until(names, 60)
    steps = {name: counters.token_steps(stage.record, name, 40) for name in names}
    assert engine.scheduler.num_preemptions > 0
    assert {name: len(ids) for name, ids in stage.ids.items()} == {
        name: len(at) for name, at in steps.items()
    }
    first, *_, last = (max(counters.work_between(stage.record, name, 40)) for name in names)
    assert first <= 64 < last


def test_a_fitted_model_meets_both_points_that_it_was_fitted_to() -> None:
    truth = CostModel(COST.hardware, COST.model, memory_efficiency=0.6, compute_efficiency=0.3)
    seen = stall.simulated(truth, 2048, users=6, prompts=[1500])
    fitted = tradeoff.fit(COST, seen)
    assert fitted.memory_efficiency == pytest.approx(0.6)
    assert fitted.compute_efficiency == pytest.approx(0.3)
    assert fitted.seconds(Work.prefill(700)) == pytest.approx(truth.seconds(Work.prefill(700)))


def test_a_budget_that_the_engine_was_not_sized_for_is_refused() -> None:
    engine = Simulation(COST, num_blocks=100, max_num_batched_tokens=128).engine
    with pytest.raises(ValueError, match=r"budgets=\[64, 256\]: the engine was built for 128"):
        tradeoff.measure(engine, [64, 256], 2, 100)


def test_an_unknown_system_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"system='Abacus': choose from Llama-2-7B on an A100"):
        systems.cost_of("Abacus")


@pytest.mark.model
def test_the_real_engine_schedules_like_the_simulated_one_and_writes_the_same_in_chunks() -> None:
    """B134: the budget that is turned on a built engine is the one that the next step uses."""
    llm = LLM(
        device="cpu", dtype="float32", num_blocks=60, prefix_cache=None, max_num_batched_tokens=512
    )
    found = tradeoff.measure(llm.engine, [512, 48], users=3, prompt=300)
    assert llm.engine.scheduler.max_num_batched_tokens == 512
    for budget, real in found.scenes.items():
        copy = stall.simulated(COST, budget, 3, [300])
        assert counters.tokens_per_step(real.record) == counters.tokens_per_step(copy.record)
        assert real.most_work_between == min(budget, 303)
    whole, chunked = found.scenes.values()
    assert whole.token_ids["newcomer-0"] == chunked.token_ids["newcomer-0"]
    typed = len(whole.token_ids["typist-0"])
    assert chunked.token_ids["typist-0"][:typed] == whole.token_ids["typist-0"]


@pytest.mark.model
def test_a_tiny_pool_interrupts_the_last_and_changes_no_token() -> None:
    prompts = [[1000 + 7 * i + j for j in range(20)] for i in range(4)]
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    found = []
    for kwargs in (
        {"num_blocks": 64},
        {"num_blocks": 10, "preemption": "recompute"},
        {"num_blocks": 10, "swap_space": 2**24},
    ):
        llm = LLM(device="cpu", dtype="float32", max_model_len=128, prefix_cache=None, **kwargs)
        record = llm.engine.record = ScheduleRecord(llm.engine.scheduler)
        outputs = llm.generate(prompts, params, use_tqdm=False)
        found.append(([o.outputs[0].token_ids for o in outputs], llm.engine.scheduler, record))
    (plenty, _, free), (scarce, recomputing, again), (kept, swapping, swapped) = found
    assert plenty == scarce == kept
    assert recomputing.num_preemptions > 0 == recomputing.num_swaps
    assert swapping.num_preemptions == swapping.num_swaps > 0
    assert {p.request_id for p in again.preemptions()} <= {"llm-2", "llm-3", "llm-4"}
    computed = [sum(counters.tokens_per_step(record)) for record in (free, again, swapped)]
    assert computed[0] == computed[2] < computed[1]
