"""Chapter 04's schedules, and the theory beside them."""

import heapq
import random
from itertools import pairwise

import numpy as np
import pytest

from minillm_serve.course.chapter04 import bars, schedules, sweeps, table, theory
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.lengths import Fixed, Geometric, LogNormal, Uniform

EIGHT = [2, 8, 3, 5, 4, 1, 6, 3]
KINDS = tuple(schedules.SCHEDULERS)


def static_steps(lengths: list[int], batch: int) -> int:
    return sum(max(lengths[i : i + batch]) for i in range(0, len(lengths), batch))


def list_steps(lengths: list[int], batch: int) -> int:
    free = [0] * batch
    for n in lengths:
        heapq.heapreplace(free, free[0] + n)
    return max(free)


@pytest.mark.parametrize("seed", range(6))
def test_the_real_schedulers_take_the_steps_of_the_few_lines_in_the_chapter(seed: int) -> None:
    draw = random.Random(seed)
    batch, lengths = draw.randint(1, 9), [draw.randint(1, 30) for _ in range(40)]
    assert schedules.steps("static", lengths, batch) == static_steps(lengths, batch)
    assert schedules.steps("dynamic", lengths, batch) == static_steps(lengths, batch)
    took = schedules.steps("continuous", lengths, batch)
    assert took == list_steps(lengths, batch)
    assert theory.least_steps(lengths, batch) <= took <= theory.most_steps(lengths, batch)


def test_grahams_bound_is_reached() -> None:
    """B(B-1) answers of one token, then one of B: the textbook's worst case."""
    lengths = [1] * 12 + [4]
    assert schedules.steps("continuous", lengths, 4) == theory.most_steps(lengths, 4) == 7
    assert schedules.steps("continuous", lengths[::-1], 4) == theory.least_steps(lengths, 4) == 4


def test_the_eight_answers_of_the_chapter() -> None:
    used = {k: schedules.run(k, schedules.at_once(EIGHT), 4)[0].record for k in KINDS}
    assert {k: len(record) for k, record in used.items()} == {
        "static": 14,
        "dynamic": 14,
        "continuous": 10,
    }
    assert used["static"].slot_utilisation == pytest.approx(32 / 56)
    assert used["continuous"].slot_utilisation == pytest.approx(32 / 40)


@pytest.mark.parametrize(
    "lengths",
    [
        Fixed(7),
        Uniform(3, 31),
        Geometric(20),
        LogNormal(16, 1.0),
        LogNormal(20, 2.0, high=64),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 8])
def test_the_longest_of_a_batch_is_on_average_what_theory_says(
    lengths: theory.Known, batch: int
) -> None:
    drawn = lengths.sample(np.random.default_rng(0), 40_000 * batch).reshape(-1, batch)
    assert theory.expected_longest(lengths, batch) == pytest.approx(drawn.max(1).mean(), rel=0.02)


@pytest.mark.parametrize("batch", [2, 8, 64])
def test_memoryless_answers_gain_the_harmonic_number(batch: int) -> None:
    harmonic = sum(1 / i for i in range(1, batch + 1))
    assert theory.gain(Geometric(500), batch) == pytest.approx(harmonic, rel=0.005)


def test_equal_answers_gain_nothing_and_bounded_ones_less_than_twice() -> None:
    assert theory.gain(Fixed(50), 64) == 1
    assert schedules.steps("static", [5] * 12, 4) == schedules.steps("continuous", [5] * 12, 4)
    assert 1.9 < theory.gain(Uniform(1, 99), 64) < 2


def test_what_cannot_be_priced_is_refused() -> None:
    with pytest.raises(ValueError, match="batch=0"):
        theory.expected_longest(Fixed(3), 0)
    with pytest.raises(ValueError, match="choose Fixed, Uniform"):
        theory.expected_longest("long", 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scheduler='fifo': choose from static, dynamic"):
        schedules.run("fifo", [], 4)


def test_the_gain_grows_with_the_spread_as_theory_says() -> None:
    found = sweeps.gains((0.0, 0.5, 1.0, 1.5), 8, 32, people=400, most=256)
    assert found[0].steps == found[0].throughput == 1
    for before, after in pairwise(found):
        assert before.steps < after.steps
    for gain in found:
        assert gain.steps <= gain.theory  # the queue ends, and its tail costs
        assert gain.steps == pytest.approx(gain.theory, rel=0.15)


def test_two_crowds_rank_static_dynamic_continuous() -> None:
    """The trace of the chapter, with its moments in steps of the stopwatch."""
    lengths = [8, 40, 6, 10, 5, 12, 9, 38, 40, 7, 4, 11, 36, 6]
    later = 64 * 0.0071
    people = [Arrival(later * (i >= 6), 30, n) for i, n in enumerate(lengths)]
    made = [schedules.run(kind, people, 4)[0] for kind in KINDS]
    assert [one.tokens for one in made] == [sum(lengths)] * 3
    for worse, better in pairwise(made):
        assert len(worse.record) > len(better.record)
        assert worse.record.slot_utilisation < better.record.slot_utilisation
        assert worse.busy_share < better.busy_share
        assert worse.throughput < better.throughput


def test_over_time_a_batch_that_waits_counts_as_idle_and_over_steps_it_does_not() -> None:
    people = [Arrival(0.0, 1, 10), Arrival(1.0, 1, 10)]
    one = schedules.run("static", people, 2)[0]
    assert one.record.slot_utilisation == 1
    ran = sum(ended - began for began, ended in one.record.ran())
    assert one.busy_share == pytest.approx(ran / (1 + ran))
    assert bars.held_up(one) == [(0.0, pytest.approx(1.0))]


@pytest.mark.parametrize("kind", KINDS)
def test_bars_cover_every_cell_once(kind: str) -> None:
    people = schedules.crowd(30, 0.03, theory.spread(24, 1.5), seed=3)
    one = schedules.run(kind, people, 4)[0]
    taken, empty = bars.busy(one), bars.idle(one)
    cells = [
        (bar.slot, step) for bar in taken + empty for step in range(bar.first_step, bar.end_step)
    ]
    assert len(cells) == len(set(cells)) == 4 * len(one.record)
    assert sum(bar.cells for bar in empty) == one.record.idle_cells
    assert sum(bar.cells for bar in taken) == one.tokens
    dragged = bars.idle(one, dragged_only=True)
    assert sum(bar.cells for bar in dragged) == one.num_dragged
    assert (not dragged) == (kind == "continuous")


def test_a_batch_waits_only_while_somebody_is_there() -> None:
    people = schedules.crowd(12, 0.2, theory.spread(24, 1.0), seed=1)
    assert bars.held_up(schedules.run("continuous", people, 4)[0]) == []
    waits = bars.held_up(schedules.run("dynamic", people, 4, delay=0.1)[0])
    assert waits
    assert all(ended - began <= 0.1 + 1e-9 for began, ended in waits)


def test_the_table_grows_by_a_column_and_its_rows_come_and_go() -> None:
    record = schedules.run("continuous", schedules.at_once(EIGHT, prompt=5), 4)[0].record
    rows = table.rows(record)
    assert [len(step) for step in rows] == list(record.num_rows)
    for before, after in pairwise(rows):
        for slot, row in after.items():
            if row.enters:
                assert slot not in before or before[slot].leaves
                assert row.num_tokens == row.length == 5
            else:
                assert row.length == before[slot].length + 1
    # The last token's keys are never needed: prompt and all but one token of the answer are there.
    ends = {r.request_id: r.length for step in rows for r in step.values() if r.leaves}
    assert ends == {str(i): 5 + n - 1 for i, n in enumerate(EIGHT)}


def test_the_printed_table_tells_who_comes_and_goes() -> None:
    record = schedules.run("continuous", schedules.at_once(EIGHT, prompt=5), 4)[0].record
    first, second, third = table.printed(record, range(3))
    assert first == ["0", "4", *(f"{i}: +5 → 5" for i in range(4)), "0, 1, 2, 3 in"]
    assert second[2] == "0: 6 ■"
    assert second[-1] == "0 out after it"
    assert third[2] == "4: +5 → 5"


def test_the_wall_of_a_scheduler_is_where_its_line_begins_to_grow() -> None:
    for kind in ("static", "continuous"):
        wall = sweeps.ceiling(kind, 8, 64, 1.0)
        calm, flooded = (
            sweeps.load(kind, share * wall, 8, 64, 1.0, people=400) for share in (0.5, 2.0)
        )
        assert flooded.first > 5 * calm.first
        # A flooded server serves what its wall says, prompts' own steps and the tail aside.
        assert flooded.throughput == pytest.approx(wall * 64, rel=0.25)
