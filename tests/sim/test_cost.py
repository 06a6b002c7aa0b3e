"""The cost of a step is what its batch reads and computes."""

import pytest

from minillm_serve.core import Batch, Request, ScheduledSequence, Sequence
from minillm_serve.sim import HARDWARE, MODELS, decode_cost, prefill_cost
from minillm_serve.sim.cost import CostModel, Work

H200, LLAMA = HARDWARE["H200 SXM"], MODELS["Llama-3-8B"]


def slice_of(start, count, samples):
    sequence = Sequence(Request(request_id="r", prompt_token_ids=(1,) * (start + count)))
    return ScheduledSequence(sequence, start, count, samples)


def test_the_work_of_a_mixed_batch_is_counted_by_hand():
    batch = Batch((slice_of(9, 1, True), slice_of(0, 4, False), slice_of(4, 3, True)))
    # Context: 10 + 4 + 7. Pairs: 10, 1 + 2 + 3 + 4, 5 + 6 + 7.
    assert Work.of(batch) == Work(sequences=3, tokens=8, samples=2, context=21, pairs=38)


def test_a_chunked_prompt_has_as_many_pairs_as_a_whole_one():
    chunks = [Work.of(Batch((slice_of(start, 5, False),))) for start in (0, 5, 10)]
    assert sum(work.pairs for work in chunks) == Work.prefill(15).pairs


def test_both_terms_are_those_of_the_roofline():
    memory, compute = CostModel(H200, LLAMA).terms(Work.decode(32, 1000))
    roof = decode_cost(H200, LLAMA, 32, 1000)
    assert memory == pytest.approx(roof.memory_s, rel=1e-3)  # the new token is written as well
    assert compute == pytest.approx(roof.compute_s)
    memory, compute = CostModel(H200, LLAMA).terms(Work.prefill(1000))
    roof = prefill_cost(H200, LLAMA, 1000)
    assert memory == pytest.approx(roof.memory_s, rel=1e-1)
    assert compute == pytest.approx(roof.compute_s)


def test_a_step_that_samples_nothing_does_not_read_the_output_head():
    model = CostModel(H200, LLAMA)
    with_head, without = Work(1, 8, 1, 8, 36), Work(1, 8, 0, 8, 36)
    head_bytes = 2 * LLAMA.hidden_size * LLAMA.vocab_size
    saved = model.terms(with_head)[0] - model.terms(without)[0]
    assert saved == pytest.approx(head_bytes / H200.bandwidth_bytes_s)


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_a_run_of_steps_costs_as_much_as_its_steps(steps):
    model = CostModel(H200, LLAMA, overhead_s=1e-4)
    one_by_one = sum(model.seconds(Work.decode(8, 500 + i)) for i in range(steps))
    assert model.seconds_of_run(Work.decode(8, 500), steps) == pytest.approx(one_by_one, rel=1e-12)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 0.01, 0.5, 3.0])
def test_the_steps_within_a_time_are_the_fewest_that_fill_it(seconds):
    model, first = CostModel(H200, LLAMA), Work.decode(64, 800)
    steps = model.steps_within(first, seconds)
    assert model.seconds_of_run(first, steps) >= seconds
    assert steps == 1 or model.seconds_of_run(first, steps - 1) < seconds


def test_a_fit_finds_the_constants_that_made_the_measurements():
    truth = CostModel(H200, LLAMA, overhead_s=2e-4, memory_efficiency=0.7, compute_efficiency=0.4)
    works = [Work.decode(1, 100), Work.decode(64, 900), Work.prefill(2000)]
    fitted = CostModel(H200, LLAMA, overhead_s=2e-4).fitted([(w, truth.seconds(w)) for w in works])
    assert fitted.memory_efficiency == pytest.approx(0.7)
    assert fitted.compute_efficiency == pytest.approx(0.4)


def test_a_fit_to_steps_of_one_shape_is_refused():
    model = CostModel(H200, LLAMA)
    with pytest.raises(ValueError, match="at least two"):
        model.fitted([(Work.decode(1, 10), 0.01)])
    with pytest.raises(ValueError, match="a small batch and a large one"):
        model.fitted([(Work.decode(1, 10), 0.01)] * 3)


def test_impossible_constants_are_refused_by_name():
    with pytest.raises(ValueError, match="memory_efficiency=0"):
        CostModel(H200, LLAMA, memory_efficiency=0)
    with pytest.raises(ValueError, match="overhead_s=-1"):
        CostModel(H200, LLAMA, overhead_s=-1)
