"""Chapter 10 without a server: readings, the rush, and what is drawn of them."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from minillm_serve.course import plots
from minillm_serve.course.chapter10 import burst, doors, panels, pictures
from minillm_serve.course.chapter10.recorder import Point, levels
from minillm_serve.course.chapter10.watch import Reading, Span

METRICS = """# HELP minillm:num_requests_running Sequences in the batch.
# TYPE minillm:num_requests_running gauge
minillm:num_requests_running{model_name="m"} 3.0
# TYPE minillm:http_requests_total counter
minillm:http_requests_total{method="POST",route="/v1/completions",status="429"} %d
minillm:http_requests_total{method="GET",route="/metrics",status="200"} 9.0
# TYPE minillm:time_to_first_token_seconds histogram
minillm:time_to_first_token_seconds_sum{model_name="m"} %f
minillm:time_to_first_token_seconds_count{model_name="m"} %d
# TYPE minillm:engine_busy_seconds_total counter
minillm:engine_busy_seconds_total{model_name="m"} %f
# TYPE minillm:kv_cache_usage_perc gauge
minillm:kv_cache_usage_perc{model_name="m"} %f
"""


def reading(at, refused=0, ttft=(0.0, 0), busy=0.0, kv=0.0):
    return Reading.of(METRICS % (refused, *ttft, busy, kv), at)


def test_two_readings_tell_rates_and_means_and_gauges_of_the_later_one():
    span = Span(reading(10.0, 2, (1.0, 4), 5.0), reading(14.0, 7, (4.0, 10), 8.0, 0.25))
    assert (span.seconds, span.running, span.refused, span.kv_usage) == (4.0, 3, 5, 0.25)
    assert span.ttft == pytest.approx(0.5)  # 3 s more for 6 more
    assert span.busy == pytest.approx(0.75)
    assert span.tpot is None
    assert span.tokens_per_second == 0.0


def test_a_span_of_nothing_divides_by_nothing():
    now = reading(1.0)
    span = Span(now, now)
    assert (span.busy, span.tokens_per_second, span.ttft) == (0.0, 0.0, None)


def points(count):
    readings = [reading(float(at), at, (0.1 * at, at), 0.5 * at, 0.01 * at) for at in range(count)]
    pairs = enumerate(pairwise(readings), 1)
    return [Point(float(at), 4.0, Span(before, after)) for at, (before, after) in pairs]


def test_the_two_numbers_of_a_run_are_its_busy_share_and_its_usual_kv_usage():
    busy, used = levels(points(10))
    assert busy == pytest.approx(0.5)
    assert used == pytest.approx(0.05)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_the_panels_are_drawn_from_any_number_of_points(count):
    seen = points(count) if count else []
    with plots.style():
        figure = panels.draw(seen, 4.0)
        figure.canvas.draw()
    assert "load 4/s" in figure.axes[0].get_title(loc="left")
    if count > 1:
        assert "4 questions a second" in panels.describe(seen[-1])


def test_the_panels_mark_where_the_load_changes():
    seen = [replace(point, rate=2.0 if point.at <= 3 else 8.0) for point in points(8)]
    axes = panels.draw(seen, 8.0).axes
    for ax in axes:
        dotted = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"]
        assert dotted == [3.0]
    assert [[text.get_text() for text in ax.texts] for ax in axes[2:]] == [[" 8/s"], [" 8/s"]]


def test_a_rush_is_the_same_each_time_and_louder_only_while_it_lasts():
    calm, loud = burst.rush(times=1.0), burst.rush(times=10.0)
    assert loud == burst.rush(times=10.0)
    begin, end = burst.BURST

    def count(crowd, name, inside):
        pairs = zip(crowd.arrivals, crowd.tenants, strict=True)
        return sum(t == name and (begin <= a.time < end) == inside for a, t in pairs)

    assert count(loud, burst.LOUD, True) > 6 * count(calm, burst.LOUD, True)
    quiet = [name for name in burst.TENANTS if name != burst.LOUD]
    assert sum(count(loud, n, True) for n in quiet) < 2 * sum(count(calm, n, True) for n in quiet)
    assert [a.time for a in loud.arrivals] == sorted(a.time for a in loud.arrivals)


@pytest.fixture(scope="module")
def served():
    return {name: burst.serve(door, burst.rush()) for name, door in doors.DOORS.items()}


def test_everybody_let_in_is_most_of_them_late(served):
    late = served["everybody"]
    assert late.goodput < 0.6 * served["in time, and fair"].goodput
    assert not np.isnan(late.ttft).any()
    assert (late.tries == 1).all()


def test_the_fair_door_keeps_the_promise_to_the_quiet_and_serves_as_many(served):
    fair, blunt = served["in time, and fair"], served["who is in time"]
    assert fair.quiet_share > blunt.quiet_share + 0.05
    assert fair.quiet_share > 0.9
    assert fair.goodput > 0.9 * blunt.goodput
    assert np.nanmax(fair.ttft) < 1.5 * burst.PATIENCE


def test_whoever_is_refused_comes_again_a_few_times_and_not_for_ever(served):
    for name in ("8 may wait", "in time, and fair"):
        rushed = served[name]
        assert 1 < rushed.tries.max() <= burst.TRIES
        assert (
            np.isnan(rushed.ttft).sum() == rushed.outcome.num_refused + rushed.outcome.num_expired
        )


def test_the_doors_are_drawn_with_their_shares(served):
    figure = doors.draw_served(served)
    figure.canvas.draw()
    said = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert all("a second in time" in text for text in said)
    assert len(said) == len(doors.DOORS)


def test_the_experiment_says_what_it_shows_and_asks_what_it_can_answer(served):
    experiment = doors.experiment()
    assert experiment.error is None
    before = experiment.describe()
    experiment.set(door="in time, and fair")
    assert experiment.error is None
    assert experiment.describe() != before
    answer = experiment.predict.right_answer(experiment.values())
    late = served["everybody"]
    quiet = [name != burst.LOUD for name in late.rush.tenants]
    assert answer == round(100 * late.in_time[quiet].mean())  # the three together
    assert 0 < answer < 50


def test_the_numbers_are_drawn_where_they_were_measured():
    figure = pictures.draw_numbers({"few": (0.1, 0.05), "many": (0.97, 0.3), "more": (0.98, 0.31)})
    figure.canvas.draw()
    (ax,) = figure.axes
    seen = [tuple(line.get_xydata()[0]) for line in ax.lines]
    assert seen == [(0.1, 0.05), (0.97, 0.3), (0.98, 0.31)]
    assert math.isclose(pictures.RULE, 0.7)
    pictures.draw_way().canvas.draw()
    pictures.draw_waits([0.5, 1.5], 1.0).canvas.draw()
