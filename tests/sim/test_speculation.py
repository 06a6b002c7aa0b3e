"""Speculation in simulated time: drafts are priced and kept as asked, and closed forms hold."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.core import AdaptiveLengths, FixedLengths
from minillm_serve.sim import HARDWARE, MODELS
from minillm_serve.sim.arrivals import Arrival
from minillm_serve.sim.cost import CostModel, Work
from minillm_serve.sim.executor import SimClock, SimExecutor
from minillm_serve.sim.simulation import Simulation
from minillm_serve.sim.speculation import (
    best_length,
    break_even_alpha,
    by_costs,
    by_model,
    by_ratio,
    expected_tokens,
    speedup,
    step_costs,
)

COST = CostModel(HARDWARE["H200 SXM"], MODELS["Llama-3-8B"], overhead_s=1e-4)


def serve(count, tokens, *, lengths=None, records=None, **options):
    """So many users at once, with prompts of 256 tokens each."""
    made = Simulation(
        COST, num_blocks=80 * count, draft_lengths=lengths, max_num_batched_tokens=2**16,
        on_step=None if records is None else records.append, **options
    )  # fmt: skip
    return made, made.run([Arrival(0.0, 256, tokens)] * count)


def decode_rate(count, tokens, **options):
    """Output tokens a second once all prompts are read."""
    records = []
    serve(count, tokens, records=records, **options)
    _, *rest = records  # one step reads all prompts
    full = [r for r in rest if r.num_scheduled == count]
    full = full[: max(1, len(full) * 4 // 5)]  # until somebody is about to end
    return sum(r.num_sampled for r in full) / sum(r.ended - r.began for r in full)


def test_drafts_are_kept_as_often_as_asked():
    made, _ = serve(8, 900, lengths=FixedLengths(4), acceptance=0.7)
    stats = made.engine.spec_stats
    places = stats.num_accepted_tokens_per_pos
    assert stats.num_drafts > 2000
    for place, kept in enumerate(places, 1):
        assert kept / stats.num_drafts == pytest.approx(0.7**place, abs=0.03)
    assert stats.mean_acceptance_length == pytest.approx(expected_tokens(0.7, 4), rel=0.03)


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 1.0])
def test_everybody_gets_as_many_tokens_as_without_drafts(acceptance):
    arrivals = [Arrival(i / 500, 10 + 7 * i, 1 + 9 * i) for i in range(12)]

    def run(**options):
        made = Simulation(COST, num_blocks=60, max_num_seqs=5, **options)
        outcome = made.run(arrivals)
        rows = zip(outcome.prompt_tokens.tolist(), outcome.output_tokens.tolist(), strict=True)
        return sorted(rows)

    assert run(draft_lengths=FixedLengths(3), acceptance=acceptance) == run()


@pytest.mark.parametrize("k", [1, 4])
def test_if_every_draft_is_kept_a_step_gives_k_tokens_and_one_more(k):
    records = []
    serve(2, 1 + 10 * (k + 1), lengths=FixedLengths(k), acceptance=1.0, records=records)
    assert [r.num_sampled for r in records] == [2, *[2 * (k + 1)] * 10]


def test_if_none_is_a_step_gives_one_and_costs_more():
    records, plain = [], []
    serve(1, 9, lengths=FixedLengths(4), acceptance=0.0, records=records)
    serve(1, 9, records=plain)
    assert [r.num_sampled for r in records] == [r.num_sampled for r in plain] == [1] * 9
    assert records[-1].ended > plain[-1].ended


def test_what_is_kept_does_not_hang_on_who_else_is_there_or_on_how_many_are_drafted():
    def kept(count, k):
        records = []
        made = Simulation(
            COST, num_blocks=800, draft_lengths=FixedLengths(k), acceptance=0.6,
            on_step=records.append,
        )  # fmt: skip
        sequences = []
        step = made.engine.executor.submit

        def submit(batch):
            handle = step(batch)
            for item, output in zip(batch.scheduled, handle.wait().outputs, strict=True):
                if item.sequence.request.request_id == "0":
                    start = item.known_end
                    sequences.extend(start + i for i in range(output.num_accepted))
            return handle

        made.engine.executor.submit = submit
        made.run([Arrival(0.0, 256, 200)] * count)
        return set(sequences)

    alone, crowd = kept(1, 1), kept(5, 1)
    assert alone == crowd
    assert len(alone) > 20


def test_drafting_and_verifying_take_what_the_cost_model_says():
    records = []
    made = Simulation(
        COST, num_blocks=100, draft_lengths=FixedLengths(2), draft_cost=0.1, on_step=records.append
    )
    made.run([Arrival(0.0, 99, 4)])
    step = records[1]
    assert (step.num_tokens, step.num_sampled) == (3, 1)
    drafting = 0.1 * sum(COST.seconds(Work.decode(1, context)) for context in (100, 101))
    verifying = COST.seconds(Work.verify(1, 2, 100))
    assert step.ended - step.began == pytest.approx(drafting + verifying, rel=1e-9)


def test_work_of_a_verification_is_counted_row_by_row():
    # The new token stands at 100 tokens, two drafts behind it: rows that see 100, 101 and 102.
    assert Work.verify(4, 2, 100) == Work(4, 12, 12, 4 * 102, 4 * (100 + 101 + 102))
    assert Work.verify(4, 0, 100) == Work.decode(4, 100)


@pytest.mark.parametrize("options", [{"acceptance": 1.5}, {"draft_cost": -0.1}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="="):
        SimExecutor(COST, SimClock(), **options)


# Closed forms


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(0, 20))
def test_expected_tokens_are_the_sum_of_the_powers(alpha, k):
    assert expected_tokens(alpha, k) == pytest.approx(sum(alpha**i for i in range(k + 1)))


def test_expected_tokens_at_the_ends():
    assert [expected_tokens(alpha, 4) for alpha in (0.0, 1.0)] == [1.0, 5.0]
    for arguments in ((1.1, 2), (-0.1, 2), (0.5, -1)):
        with pytest.raises(ValueError, match="expected"):
            expected_tokens(*arguments)


def test_the_papers_own_figures_come_out():
    """Leviathan 2023, table 1: alpha 0.6 to 0.9, for drafts that cost nothing."""
    table = {(0.6, 2): 1.96, (0.7, 3): 2.53, (0.8, 2): 2.44, (0.8, 5): 3.69}
    table |= {(0.9, 2): 2.71, (0.9, 10): 6.86}
    for (alpha, k), speed in table.items():
        assert speedup(alpha, k, by_ratio(0.0)) == pytest.approx(speed, abs=0.005)


def test_drafts_pay_from_the_break_even_on():
    for k, c in ((1, 0.1), (4, 0.1), (4, 0.02)):
        alpha = break_even_alpha(k, by_ratio(c))
        assert speedup(alpha, k, by_ratio(c)) == pytest.approx(1.0)
    # One draft pays if alpha > c (Leviathan 2023, corollary 3.9).
    assert break_even_alpha(1, by_ratio(0.1)) == pytest.approx(0.1)
    assert break_even_alpha(3, by_ratio(1.5)) is None
    assert break_even_alpha(3, by_ratio(0.0)) == pytest.approx(0.0, abs=1e-9)


def test_the_best_length_is_the_fastest():
    for alpha in (0.0, 0.3, 0.6, 0.9):
        rates = [speedup(alpha, k, by_ratio(0.05)) for k in range(17)]
        assert rates[best_length(alpha, by_ratio(0.05))] == max(rates)
    assert best_length(0.03, by_ratio(0.05)) == 0


@pytest.mark.parametrize(
    ("batch", "alpha", "k"), [(1, 0.8, 4), (1, 0.3, 4), (16, 0.6, 3), (256, 0.6, 3)]
)
def test_the_simulation_agrees_with_the_closed_form(batch, alpha, k):
    tokens = 600 if batch == 1 else 100
    plain = decode_rate(batch, tokens)
    fast = decode_rate(
        batch, tokens, lengths=FixedLengths(k), acceptance=alpha, draft_cost=0.05,
        max_num_seqs=batch,
    )  # fmt: skip
    foretold = speedup(
        alpha, k, by_model(COST, context=450 if batch == 1 else 300, draft_cost=0.05), batch
    )
    assert fast / plain == pytest.approx(foretold, rel=0.04)


def test_on_a_card_drafts_pay_for_few_and_not_for_many():
    seconds = by_model(COST, context=512, draft_cost=0.05)
    assert speedup(0.7, 4, seconds, 1) > 2
    assert speedup(0.7, 4, seconds, 512) < 1
    alphas = [break_even_alpha(4, seconds, batch) or 2.0 for batch in (1, 16, 64, 256)]
    assert alphas == sorted(alphas)


def test_adaptive_lengths_take_the_gain_and_leave_the_loss():
    costs = step_costs(COST, context=400, draft_cost=0.05)
    assert speedup(0.7, 3, by_costs(costs), 8) == pytest.approx(
        speedup(0.7, 3, by_model(COST, context=400, draft_cost=0.05), 8), rel=0.02
    )

    def gain(batch, tokens, alpha):
        options = {"acceptance": alpha, "draft_cost": 0.05, "max_num_seqs": batch}
        lengths = AdaptiveLengths(5, costs)
        fast = decode_rate(batch, tokens, lengths=lengths, **options)
        return fast / decode_rate(batch, tokens, max_num_seqs=batch)

    assert gain(1, 800, 0.8) > 2
    assert gain(1, 800, 0.0) > 0.97
    assert gain(256, 100, 0.3) > 0.985
