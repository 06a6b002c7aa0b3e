"""TTFT, TPOT, throughput and goodput on logs that can be checked by hand."""

import math

import pytest

from minillm_serve.core.metrics import RequestMetrics
from minillm_serve.sim.metrics import (
    SLO,
    TokenLog,
    goodput,
    makespan,
    percentile,
    request_rate,
    throughput,
)

FAST = TokenLog(0.0, (0.5, 0.6, 0.7, 0.8))
SLOW = TokenLog(1.0, (4.0, 4.5, 6.0))
ONE = TokenLog(2.0, (2.25,))


def test_a_log_by_hand() -> None:
    assert FAST.ttft == 0.5
    assert FAST.tpot == pytest.approx(0.1)  # three gaps, not four tokens
    assert FAST.e2e == 0.8
    assert SLOW.itl == (0.5, 1.5)
    assert (SLOW.ttft, SLOW.tpot, SLOW.e2e) == (3.0, 1.0, 5.0)


def test_end_to_end_is_the_first_token_and_the_gaps() -> None:
    for log in (FAST, SLOW):
        assert log.tpot is not None
        assert log.e2e == pytest.approx(log.ttft + (len(log.times) - 1) * log.tpot)


def test_a_single_token_has_no_gap() -> None:
    assert ONE.tpot is None
    assert ONE.itl == ()
    assert ONE.ttft == ONE.e2e == 0.25


def test_the_engines_own_figures_mean_the_same() -> None:
    for log in (FAST, SLOW, ONE):
        engine = RequestMetrics(
            arrival_time=log.arrival,
            first_token_time=log.times[0],
            last_token_time=log.times[-1],
            finished_time=log.times[-1],
            num_output_tokens=len(log.times),
        )
        assert (engine.ttft, engine.tpot, engine.latency) == (log.ttft, log.tpot, log.e2e)


def test_throughput_is_over_the_makespan_not_over_the_sum_of_latencies() -> None:
    logs = [FAST, SLOW, ONE]
    assert makespan(logs) == 6.0
    assert throughput(logs) == pytest.approx(8 / 6)
    assert request_rate(logs) == pytest.approx(3 / 6)


def test_goodput_counts_who_met_every_objective() -> None:
    logs = [FAST, SLOW, ONE]
    assert goodput(logs, SLO()) == request_rate(logs)
    assert goodput(logs, SLO(ttft=1.0)) == pytest.approx(2 / 6)
    assert goodput(logs, SLO(ttft=10.0, tpot=0.5)) == pytest.approx(2 / 6)
    assert goodput(logs, SLO(ttft=0.3, tpot=0.5)) == pytest.approx(1 / 6)
    assert goodput(logs, SLO(ttft=0.01)) == 0.0


def test_an_objective_met_exactly_is_met() -> None:
    assert SLO(ttft=3.0, tpot=1.0).met_by(SLOW)
    assert not SLO(ttft=3.0, tpot=math.nextafter(1.0, 0)).met_by(SLOW)


def test_percentiles_are_numpys() -> None:
    assert percentile([4.0, 1.0, 2.0, 3.0], 50) == 2.5
    assert percentile([1.0, 2.0], 0) == 1.0
    assert percentile([7.0], 95) == 7.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenLog(0.0, ()), r"times is empty"),
        (lambda: TokenLog(1.0, (0.5,)), r"must ascend from arrival=1.0"),
        (lambda: TokenLog(0.0, (2.0, 1.0)), r"must ascend"),
        (lambda: TokenLog(0.0, (math.nan,)), r"must ascend"),
        (lambda: SLO(ttft=0), r"seconds above 0"),
        (lambda: makespan([]), r"no logs"),
        (lambda: throughput([TokenLog(1.0, (1.0,))]), r"all happened in one moment"),
        (lambda: percentile([], 50), r"no values"),
        (lambda: percentile([1.0], 101), r"q is 101"),
    ],
)
def test_what_has_no_figure_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
