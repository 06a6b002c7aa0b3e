"""Chapter 04's experiments: what they say is in the engine's record, and every control counts."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from minillm_serve.course import render
from minillm_serve.course.chapter04 import gantt, idle, schedules, sweeps, theory
from minillm_serve.course.experiment import Experiment
from minillm_serve.course.linked import FormulaExperiment


def revealed(experiment: Experiment) -> Experiment:
    assert experiment.panel is not None
    experiment.panel.give_up()
    return experiment


@pytest.fixture
def chart() -> Experiment:
    return revealed(gantt.experiment())


@pytest.fixture
def cells() -> FormulaExperiment:
    made = revealed(idle.experiment())
    assert isinstance(made, FormulaExperiment)
    return made


@pytest.mark.parametrize("make", [gantt.experiment, idle.experiment])
def test_every_control_changes_the_picture_by_its_smallest_step(make: object) -> None:
    experiment = revealed(make())  # type: ignore[operator]
    picture = "svg" if isinstance(experiment, FormulaExperiment) else "value"
    for name, control in experiment.controls.items():
        if name == "who":
            continue  # its choices are drawn below
        before = getattr(experiment.picture, picture)
        control.value += control.step
        assert experiment.error is None
        assert getattr(experiment.picture, picture) != before, name


@pytest.mark.parametrize(
    "change",
    [
        {"people": 4, "B": 8, "gap": 0, "cv": 0.0},
        {"people": 30, "B": 1, "gap": 200, "cv": 2.0, "delay": 0},
        {"people": 4, "follow": 29, "who": "dynamic", "delay": 400},
        {"people": 30, "gap": 0, "seed": 20, "who": "continuous"},
    ],
    ids=str,
)
def test_the_chart_is_drawn_at_every_corner(chart: Experiment, change: dict[str, object]) -> None:
    chart.set(**change)
    assert chart.error is None
    assert "nan" not in chart.describe()


def test_the_chart_tells_the_numbers_of_a_schedule_made_anew(chart: Experiment) -> None:
    people = schedules.crowd(14, 0.04, theory.spread(gantt.MEAN, 1.0), seed=0)
    for name, delay in (("static", None), ("dynamic", 0.05), ("continuous", None)):
        one, outcome = schedules.run(name, people, 4, delay=delay)
        (place,) = (i for i, user in enumerate(outcome.users) if user == 6)
        assert (
            f"{name}: {one.busy_share:.0%} of the slots at work, "
            f"{outcome.throughput:.0f} tokens/s; "
            f"person 6 waits {1e3 * outcome.waiting[place]:.0f} ms to begin and "
            f"has the whole answer after {1e3 * outcome.latency[place]:.0f} ms"
        ) in chart.describe()


def test_the_chart_starts_where_theory_would_have_it() -> None:
    """The three rank; elsewhere luck may let dynamic fall behind static, as the chapter says."""
    start = {name: control.value for name, control in gantt.knobs().items()}
    made = list(gantt.chosen(**start).values())
    for worse, better in pairwise(made):
        assert worse.busy_share < better.busy_share
        assert worse.throughput < better.throughput
    unlucky = gantt.chosen(**{**start, "seed": 2})
    assert unlucky["dynamic"].busy_share < unlucky["static"].busy_share


def test_a_longer_delay_holds_a_dynamic_batch_up_and_no_other(chart: Experiment) -> None:
    start = {name: control.value for name, control in gantt.knobs().items()}
    short, long = (gantt.chosen(**{**start, "delay": ms}) for ms in (0, 400))
    began = {
        ms: min(began for began, _ in made["dynamic"].times().values())
        for ms, made in ((0, short), (400, long))
    }
    people = schedules.crowd(14, 0.04, theory.spread(gantt.MEAN, 1.0), seed=0)
    fourth = people[3].time - people[0].time  # who fills the batch before the delay is over
    assert began == {0: 0, 400: pytest.approx(fourth)}
    for name in ("static", "continuous"):
        assert short[name].times() == long[name].times()


def test_the_cells_tell_what_the_records_count(cells: FormulaExperiment) -> None:
    for change in ({}, {"cv": 0.0}, {"cv": 2.0, "B": 16, "people": 120}, {"B": 1}):
        cells.reset()
        cells.set(**change)
        assert cells.error is None
        static, continuous = idle.both(**cells.values())
        said = cells.describe()
        for name, one in (("static", static), ("continuous", continuous)):
            record = one.record
            assert (
                f"{name}: {len(record)} steps, {record.idle_cells} idle cells, "
                f"{record.slot_utilisation:.0%} used"
            ) in said
        assert f"{len(static.record) / len(continuous.record):.2f} times fewer" in said


def test_the_formula_says_what_theory_says(cells: FormulaExperiment) -> None:
    assert cells.result() == f"{theory.gain(theory.spread(16, 1.0), 8):.2f}"
    cells.set(cv=0.0)
    assert cells.result() == "1.00"
    static, continuous = idle.both(**cells.values())
    assert static.record.idle_cells == continuous.record.idle_cells == 0


def test_more_people_bring_the_schedule_to_the_curve() -> None:
    few, many = (idle.seen_gain(cv=1.0, B=8, mean=16, people=people) for people in (8, 120))
    limit = theory.gain(theory.spread(16, 1.0), 8)
    assert few == 1  # one batch: both run to its longest
    assert few < many < limit


def test_each_symbol_is_a_part_of_the_drawing(cells: FormulaExperiment) -> None:
    root = ElementTree.fromstring(cells.picture.svg)
    marked = {name for e in root.iter() for name in e.get("data-sym", "").split()}
    assert marked == {"n", "B", "mean"}


def test_the_predictions_ask_for_what_the_pictures_show(
    chart: Experiment, cells: FormulaExperiment
) -> None:
    assert chart.predict is not None
    assert cells.predict is not None
    start = {name: control.value for name, control in gantt.knobs().items()}
    answer = chart.predict.right_answer(chart.values())
    assert answer == round(1e3 * gantt.chosen(**start)["continuous"].seconds)
    static = idle.both(**cells.values())[0].record
    share = static.idle_cells / (static.num_slots * len(static))
    assert cells.predict.right_answer(cells.values()) == round(100 * share)


@pytest.mark.parametrize("make", [gantt.experiment, idle.experiment])
def test_their_text_and_picture_are_the_same_at_each_run(make: object) -> None:
    """Notebooks are compared by text; without a kernel the picture stands (B142, B154)."""
    first, second = make(), make()  # type: ignore[operator]
    assert repr(first) == repr(second)
    assert first.static_png() == second.static_png()


def test_the_sweeps_are_drawn() -> None:
    found = {4: sweeps.gains((0.0, 1.0), 4, 16, people=40)}
    assert render.to_png(sweeps.draw_gains(found, 16)).startswith(b"\x89PNG")
    loads = {
        kind: [sweeps.load(kind, rate, 4, 16, 1.0, people=30) for rate in (1, 20)]
        for kind in schedules.SCHEDULERS
    }
    walls = {kind: sweeps.ceiling(kind, 4, 16, 1.0) for kind in ("static", "continuous")}
    assert walls["static"] < walls["continuous"]
    title = sweeps.draw_loads(loads, walls).axes[1].get_title(loc="left")
    others = [min(a.first, b.first) for a, b in zip(loads["static"], loads["dynamic"], strict=True)]
    ahead = [a / b.first for a, b in zip(others, loads["continuous"], strict=True)]
    assert title == f"First token: {min(ahead):.1f} to {max(ahead):.0f} times sooner"
