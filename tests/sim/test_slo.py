"""Operating points: the line of a full server, Little's batch, and what a promise affords."""

import math
from itertools import islice

import numpy as np
import pytest

from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival, Poisson, open_loop
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.lengths import Uniform
from minillm_serve.sim.metrics import SLO
from minillm_serve.sim.shared_prefix import SharedPrefixCost, shortened
from minillm_serve.sim.simulation import Simulation
from minillm_serve.sim.slo import (
    Line,
    Traffic,
    attainment,
    full_step,
    largest_budget,
    mean_step,
    solve,
)

COST = CostModel(HARDWARE["A100 80GB"], MODELS["Llama-3-8B"])
TRAFFIC = Traffic(400, 100)
PLENTY = 10**7


def test_the_line_is_the_cost_of_a_step_that_reads_its_share_of_prompts() -> None:
    """At 100 sequences 400 tokens of prompts are read: one whole prompt a step."""
    batch, context = 100, TRAFFIC.context
    work = Work(
        batch, batch + 400, batch, round(batch * context), round(batch * context) + 400 * 401 // 2
    )
    assert mean_step(COST, TRAFFIC).seconds(batch) == pytest.approx(COST.seconds(work))


def test_the_share_of_the_ceiling_is_one_less_floor_over_time() -> None:
    line = Line(0.007, 0.00025)
    for batch in (1, 28, 64, 1000):
        share = line.throughput(batch) / line.ceiling
        assert share == pytest.approx(1 - line.fixed / line.seconds(batch))
    assert line.throughput(line.half) == pytest.approx(line.ceiling / 2)
    assert line.seconds(line.within(0.03)) == pytest.approx(0.03)


def test_the_batch_that_comes_about_is_arrivals_times_stay() -> None:
    line = Line(0.01, 0.0005)
    for rate in (10.0, 800.0, 1900.0):
        batch = line.settles_at(rate)
        assert batch == pytest.approx(rate * line.seconds(batch))
    assert line.settles_at(2000.0) == math.inf


@pytest.mark.parametrize("rate", [5.0, 20.0])
def test_the_simulated_engine_settles_where_the_formula_says(rate: float) -> None:
    people = islice(open_loop(Poisson(rate), Uniform(300, 500), Uniform(60, 140)), round(15 * rate))
    seen = Simulation(COST, num_blocks=20_000).run(people)
    line = mean_step(COST, TRAFFIC)
    expected = line.seconds(line.settles_at(rate * TRAFFIC.output))
    assert np.median(seen.tpot) == pytest.approx(expected, rel=0.12)


def test_batch_and_budget_are_the_largest_that_keep_the_promises() -> None:
    slo, gap, keep = SLO(ttft=1.0, tpot=0.03), 0.05, 0.9
    found = solve(COST, TRAFFIC, slo, kv_tokens=PLENTY, gap=gap)
    line, batch, budget = mean_step(COST, TRAFFIC), found.max_num_seqs, found.max_num_batched_tokens
    assert line.seconds(batch) <= keep * slo.tpot < line.seconds(batch + 1)
    times = [full_step(COST, TRAFFIC, batch, budget + more) for more in (0, 1)]
    assert times[0] <= keep * gap < times[1]
    assert (found.bound_by, found.max_wait) == ("the promise", 0.5)
    assert found.rate == pytest.approx(line.throughput(batch) / TRAFFIC.output)


def test_memory_ends_the_batch_where_it_ends_first() -> None:
    found = solve(COST, TRAFFIC, SLO(), kv_tokens=12 * 500 + 499)
    assert (found.max_num_seqs, found.bound_by) == (12, "memory")
    assert found.max_num_batched_tokens == 8192


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        ({"slo": SLO(tpot=0.005)}, "tpot=0.005 s cannot be kept"),
        ({"slo": SLO(tpot=0.03), "gap": 0.008}, "gap=0.008 s cannot be kept"),
        ({"slo": SLO(ttft=0.02, tpot=0.03), "gap": 0.05}, "ttft=0.02 s cannot be kept"),
        ({"slo": SLO(), "kv_tokens": 499}, "kv_tokens=499 hold nobody: 500"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_kept_is_refused_by_name(promise: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        solve(COST, TRAFFIC, **{"kv_tokens": PLENTY, **promise})  # type: ignore[arg-type]


def test_the_budget_is_found_at_both_ends_of_the_search() -> None:
    assert largest_budget(COST, TRAFFIC, 10, 1e9, most=300) == 300
    just = full_step(COST, TRAFFIC, 10, 11)
    assert largest_budget(COST, TRAFFIC, 10, just, most=300) == 11
    assert largest_budget(COST, TRAFFIC, 10, 0.99 * just, most=300) is None


def test_who_is_turned_away_was_not_served_as_promised() -> None:
    people = [Arrival(0.0, 400, 50)] * 4
    seen = Simulation(COST, num_blocks=200, max_num_seqs=1, max_wait=0.6).run(people)
    assert (len(seen), seen.num_expired) == (2, 2)
    assert attainment(seen, SLO(ttft=10)) == pytest.approx(0.5)


def test_means_below_a_token_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Traffic.output is 0: give tokens"):
        Traffic(10, 0)


def test_a_shared_prefix_is_read_and_attended_to_and_not_computed() -> None:
    shared = SharedPrefixCost(COST.hardware, COST.model, shared_tokens=512)
    assert shared.seconds(Work.decode(8, 100)) == COST.seconds(Work.decode(8, 612))
    own = Work(1, 100, 1, 100, 100 * 101 // 2)
    whole = Work(1, 100, 1, 612, 100 * 512 + 100 * 101 // 2)  # its last 100 tokens, as a chunk
    assert shared.seconds(own) == COST.seconds(whole)


def test_strides_over_quiet_steps_know_of_the_shared_prefix() -> None:
    cost = SharedPrefixCost(COST.hardware, COST.model, shared_tokens=512)
    people = list(shortened([Arrival(0.1 * i, 600 + i, 40) for i in range(6)], 512))
    ends = [
        Simulation(cost, num_blocks=500, stride=stride).run(people).ends for stride in (True, False)
    ]
    assert ends[0] == pytest.approx(ends[1])


def test_a_prompt_without_a_token_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="512 tokens cannot begin with 512 shared ones"):
        list(shortened([Arrival(0.0, 512, 1)], 512))
    with pytest.raises(ValueError, match="shared_tokens=-1"):
        SharedPrefixCost(COST.hardware, COST.model, shared_tokens=-1)
