"""Chapter 05's experiments and queues: what they say is so, at odd settings too."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from minillm_serve.course.chapter05 import fairness, itl, recovery, systems, waiting
from minillm_serve.course.linked import FormulaExperiment


def symbols_of(svg: str) -> set[str]:
    """All that parts of a drawing are marked with."""
    root = ElementTree.fromstring(svg)
    return {name for e in root.iter() for name in e.get("data-sym", "").split()}


def opened(experiment: FormulaExperiment) -> FormulaExperiment:
    assert experiment.panel is not None
    experiment.panel.give_up()
    return experiment


@pytest.mark.parametrize("system", systems.PAIRS)
@pytest.mark.parametrize("prompt", [256, 4096])
def test_no_gap_is_longer_than_the_formulas_step(system: str, prompt: int) -> None:
    for budget in itl.BUDGETS:
        for users in (1, 8, 32):
            seen = itl.scene(budget, prompt, users, system)
            assert seen.longest_gap <= itl.full_step(budget, prompt, users, system) * (1 + 1e-9)


def test_the_formula_comes_near_the_first_token_wherever_the_prompt_takes_several_steps() -> None:
    for system in systems.PAIRS:
        for budget in (128, 512, 2048):
            about = itl.first_token(budget, 8192, 8, system)
            assert about == pytest.approx(itl.scene(budget, 8192, 8, system).ttft, rel=0.2)


def test_a_budget_that_typing_eats_up_is_refused() -> None:
    with pytest.raises(ValueError, match=r"C=8: 8 who type leave nothing of it"):
        itl.num_chunks(8, 100, 8)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"C": 64, "L": 8192, "B": 32, "system": "Llama-3-8B on an L4"},
        {"C": 8192, "L": 256, "B": 1},
        {"C": 64, "L": 256},
    ],
    ids=str,
)
def test_the_long_prompt_is_drawn_at_every_corner(change: dict[str, object]) -> None:
    experiment = opened(itl.experiment())
    experiment.set(**itl.knobs(**change))
    assert experiment.error is None
    assert "the longest gap is" in experiment.describe()


@pytest.mark.parametrize(
    ("make", "moves"),
    [
        (itl.experiment, {"C": 8192, "L": 8192, "B": 9, "system": "Llama-3-8B on an L4"}),
        (waiting.experiment, {"a": 128, "p": 6, "load": 1.15}),
    ],
)
def test_each_control_alone_changes_the_picture(make: object, moves: dict[str, object]) -> None:
    experiment = opened(make())  # type: ignore[operator]
    at_first = experiment.picture.svg
    for name, value in moves.items():
        experiment.set(**{name: value})
        assert experiment.picture.svg != at_first, name
        experiment.reset()
    assert experiment.picture.svg == at_first


def test_each_symbol_is_a_control_or_a_part_of_the_drawing() -> None:
    assert symbols_of(opened(itl.experiment()).picture.svg) == {"t", "L", "C", "B"}
    assert symbols_of(opened(waiting.experiment()).picture.svg) == {"a", "p", "q"}


def test_predictions_say_what_the_runs_say() -> None:
    assert "Answer: up to half as long again." in repr(itl.experiment())
    assert "Answer: stays about the same." in repr(waiting.experiment())


@pytest.mark.parametrize("make", [itl.experiment, waiting.experiment])
def test_their_text_and_picture_are_the_same_at_each_run(make: object) -> None:
    """Notebooks are compared by text; without a kernel the picture stands (B142, B154)."""
    first, second = make(), make()  # type: ignore[operator]
    assert repr(first) == repr(second)
    assert first.static_png() == second.static_png()


@pytest.mark.parametrize("change", [{"a": 1, "p": 1}, {"a": 1024, "p": 10, "load": 1.3}], ids=str)
def test_the_line_is_drawn_at_its_corners(change: dict[str, object]) -> None:
    experiment = opened(waiting.experiment())
    experiment.set(**waiting.knobs(**change))
    assert experiment.error is None
    assert "Nobody was overtaken by more than" in experiment.describe()


@pytest.mark.parametrize("ageing", [1, 4, 16, 64])
@pytest.mark.parametrize("p", [1, 5])
def test_ageing_bounds_by_how_many_anybody_is_overtaken(ageing: int, p: int) -> None:
    seen = fairness.run("priority", ageing=ageing, p=p)
    assert seen.most_overtaken < fairness.bound(ageing, p)
    assert (seen.most_overtaken > 0) == (ageing * p > 1)  # nobody is passed by less than one


def test_without_ageing_the_unimportant_starve_while_the_stream_lasts() -> None:
    strict, aged = fairness.run("priority"), fairness.run("priority", ageing=4)
    began = strict.arrived + strict.waited
    assert (began[strict.patient] > strict.arrived.max()).mean() > 0.3
    assert strict.most_overtaken > 300
    began = aged.arrived + aged.waited
    assert aged.longest_patient < strict.longest_patient / 3
    assert fairness.bound(None, 5) == math.inf


def test_no_order_that_ignores_lengths_changes_the_mean_wait_of_all() -> None:
    fcfs = fairness.run("first come, first served")
    means = [fairness.run("priority", ageing=a).waited.mean() for a in (None, 64, 4, 1)]
    assert means == pytest.approx([fcfs.waited.mean()] * 4, rel=0.03)
    assert fcfs.most_overtaken == 0
    assert fairness.run("shortest first").waited.mean() < 0.5 * fcfs.waited.mean()


def test_who_waits_is_told_in_order_of_arrival() -> None:
    seen = fairness.run("priority", ageing=16)
    assert (np.diff(seen.arrived) >= 0).all()
    assert seen.patient.sum() == fairness.PEOPLE // fairness.EVERY
    assert (seen.waited >= 0).all()
    with pytest.raises(ValueError, match=r"policy='nepotism': choose from priority, first come"):
        fairness.run("nepotism")


def test_the_crossover_is_where_the_costs_cross_and_the_engine_follows_it() -> None:
    slow = systems.cost_of("Llama-2-7B on an H200")
    recovery_cost = slow.recovery(16)
    where = recovery.crossover(recovery_cost)
    assert where is not None
    assert not recovery_cost.swap_is_cheaper(where - 16, where // 16 - 1)
    assert recovery_cost.swap_is_cheaper(where, where // 16)
    assert recovery.crossover(systems.cost_of("Llama-3-8B on an A100").recovery(16)) == 16
    for name, _, seen in recovery.table():
        assert seen.preemptions > 0
        assert seen.swaps == (0 if name == "Llama-2-7B on an H200" else seen.preemptions)
    assert recovery.crowded(slow, host=False) == recovery.crowded(slow)


def test_the_chosen_way_is_the_faster_one() -> None:
    cost = systems.cost_of("Llama-3-8B on an A100")
    assert recovery.crowded(cost).seconds < recovery.crowded(cost, host=False).seconds
