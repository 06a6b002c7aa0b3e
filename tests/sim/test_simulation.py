"""The simulator runs the real engine, and strides over quiet steps without changing a result."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival, ClosedLoop, Poisson, open_loop
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.executor import SimClock
from minillm_serve.sim.lengths import Fixed, LogNormal, Uniform
from minillm_serve.sim.metrics import SLO
from minillm_serve.sim.simulation import Simulation

COST = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"], overhead_s=1e-4)


def simulation(**options):
    return Simulation(COST, **{"num_blocks": 2_000, **options})


def test_one_request_takes_its_prompt_and_then_a_step_a_token():
    outcome = simulation().run([Arrival(1.0, 100, 5)])
    prefill = COST.seconds(Work.prefill(100))
    decode = COST.seconds_of_run(Work.decode(1, 101), 4)
    assert outcome.ttft.tolist() == pytest.approx([prefill])
    assert outcome.latency.tolist() == pytest.approx([prefill + decode])
    assert outcome.tpot.tolist() == pytest.approx([decode / 4])
    assert outcome.output_tokens.tolist() == [5]


def test_a_single_token_has_no_gap():
    outcome = simulation().run([Arrival(0.0, 10, 1)])
    assert np.isnan(outcome.tpot).all()
    assert outcome.goodput(SLO(ttft=10, tpot=1e-9)) > 0


def test_of_those_who_come_in_the_same_moment_the_first_in_the_stream_goes_first():
    """One seat: a sort of whole arrivals would let the shorter one have it."""
    outcome = simulation(max_num_seqs=1).run([Arrival(0.0, 50, 9), Arrival(0.0, 5, 2)])
    assert outcome.prompt_tokens.tolist() == [50, 5]


streams = st.lists(
    st.builds(
        Arrival,
        time=st.integers(0, 60).map(lambda ms: ms / 1000),
        prompt_tokens=st.integers(1, 60),
        output_tokens=st.integers(1, 90),
    ),
    min_size=1,
    max_size=20,
).map(sorted)


@settings(max_examples=60, deadline=None)
@given(
    streams,
    st.integers(8, 60),
    st.sampled_from([1, 4, 16]),
    st.integers(1, 12),
    st.sampled_from([4, 64]),
)
def test_striding_changes_nothing_even_if_blocks_run_short(
    arrivals, num_blocks, block_size, max_num_seqs, budget
):
    def run(stride):
        made = simulation(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max(budget, max_num_seqs),
            stride=stride,
        )
        return made.run(arrivals)

    fast, slow = run(True), run(False)
    assert len(fast) + fast.num_refused == len(arrivals)
    assert fast.num_preemptions == slow.num_preemptions
    assert fast.num_refused == slow.num_refused
    for name in ("arrivals", "prompt_tokens", "output_tokens"):
        assert getattr(fast, name).tolist() == getattr(slow, name).tolist()
    for name in ("waiting", "ttft", "latency"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12)


def test_a_long_run_of_the_real_engine_keeps_its_invariants():
    made = simulation(num_blocks=300, max_num_seqs=32)
    made.engine.debug_invariants = True
    arrivals = islice(open_loop(Poisson(40), Uniform(16, 200), LogNormal(100)), 300)
    outcome = made.run(arrivals)
    assert len(outcome) == 300
    assert outcome.num_preemptions > 0
    assert made.engine.scheduler.blocks.pool.num_free == 300
    assert not made.engine.metrics


def test_every_step_is_seen_by_an_observer():
    seen = []
    outcome = simulation(on_step=seen.append).run([Arrival(0.0, 10, 50)])
    assert len(seen) == 50
    assert seen[-1].ended == outcome.ends[0]


def test_a_closed_loop_never_has_more_requests_than_users():
    loop = ClosedLoop(3, 0.05, Fixed(20), Uniform(5, 40), seed=1)
    most = []
    made = simulation(on_step=lambda record: most.append(record.num_running + record.num_waiting))
    left = 40

    def then(arrival, now):
        nonlocal left
        left -= 1
        return loop.after(arrival, now) if left > 0 else None

    outcome = made.run(loop.start(), then=then)
    assert max(most) <= 3
    assert len(outcome) >= 40
    for user in range(3):
        own = outcome.users == user
        assert (outcome.arrivals[own][1:] >= outcome.ends[own][:-1]).all()


def test_what_never_fits_is_refused_and_counted():
    outcome = simulation(num_blocks=4, block_size=4).run(
        [Arrival(0.0, 100, 5), Arrival(0.0, 5, 5), Arrival(0.0, 16, 1)]
    )
    assert outcome.num_refused == 2
    assert outcome.prompt_tokens.tolist() == [5]


def test_nobody_comes_and_nothing_is_divided_by_zero():
    outcome = simulation().run([])
    assert (len(outcome), outcome.throughput, outcome.makespan) == (0, 0.0, 0.0)
    assert outcome.goodput(SLO()) == 0.0


def test_arrivals_out_of_order_are_refused():
    with pytest.raises(ValueError, match=r"not in order: 1\.0 s after 2\.0 s"):
        simulation().run([Arrival(2.0, 5, 5), Arrival(1.0, 5, 5)])


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="does not run backwards"):
        SimClock().advance(-1.0)


def test_more_load_means_more_waiting_until_the_queue_explodes():
    def median_ttft(rate):
        arrivals = islice(open_loop(Poisson(rate), Fixed(100), Fixed(100), seed=3), 400)
        return float(np.median(simulation(max_num_seqs=8).run(arrivals).ttft))

    calm, busy, flooded = map(median_ttft, (2, 15, 60))
    assert calm < busy < flooded
    assert flooded > 20 * calm
