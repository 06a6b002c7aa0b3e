"""Bias, minimum length and penalties, against their formulas."""

import math

import pytest
import torch

from minillm_serve.core import Request, SamplingParams, Sequence
from minillm_serve.runtime.sampling import adjust as adjusting
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.sampler import FAULTS
from tests.runtime.choosing import choose_tokens, last_tokens

V = 8
LOGITS = torch.tensor([1.0, -1.0, 0.5, 2.0, -2.0, 0.0, 3.0, -0.5])


def sequence(prompt=(0, 1), output=(), *, eos=(), **params):
    request = Request(
        request_id="r", prompt_token_ids=tuple(prompt), params=SamplingParams(**params)
    )
    made = Sequence(request, eos_token_ids=eos)
    made.token_ids += output
    return made


def adjust(logits, sequences):
    choices = [Choice.of(sequence) for sequence in sequences]
    return adjusting.adjust(logits, choices, last_tokens(sequences))


def adjusted(made):
    return adjust(LOGITS[None], [made])[0]


def test_without_wishes_the_logits_are_the_same_tensor():
    logits = LOGITS[None]
    assert adjust(logits, [sequence()]) is logits


def test_bias_is_added_and_the_logits_are_left_alone():
    logits = LOGITS[None].clone()
    got = adjust(logits, [sequence(logit_bias={2: 5.0, 0: -100})])[0]
    want = LOGITS.clone()
    want[2] += 5
    want[0] -= 100
    assert torch.equal(got, want)
    assert torch.equal(logits[0], LOGITS)


def test_frequency_counts_outputs_only():
    got = adjusted(sequence(prompt=(3, 3), output=(0, 0, 6), frequency_penalty=0.5))
    want = LOGITS.clone()
    want[0] -= 1.0
    want[6] -= 0.5
    assert torch.equal(got, want)


def test_presence_counts_an_output_once():
    got = adjusted(sequence(prompt=(3,), output=(0, 0, 6), presence_penalty=1.5))
    want = LOGITS.clone()
    want[[0, 6]] -= 1.5
    assert torch.equal(got, want)


def test_repetition_scales_prompt_and_output_away_from_choice():
    got = adjusted(sequence(prompt=(0, 1), output=(4,), repetition_penalty=2.0))
    want = LOGITS.clone()
    want[0] /= 2  # positive: divided
    want[[1, 4]] *= 2  # negative: multiplied
    assert torch.equal(got, want)


@pytest.mark.parametrize(("length", "banned"), [(0, True), (2, True), (3, False)])
def test_neither_eos_nor_stop_tokens_come_before_min_tokens(length, banned):
    made = sequence(output=[0] * length, eos=(6,), stop_token_ids=[3], min_tokens=3)
    got = adjusted(made)
    assert (got[6] == -math.inf) == banned
    assert (got[3] == -math.inf) == banned
    assert got[:3].equal(LOGITS[:3])


def test_an_ignored_eos_is_not_banned():
    assert adjusted(sequence(eos=(6,), ignore_eos=True, min_tokens=3)).equal(LOGITS)


def test_rows_with_and_without_wishes_do_not_mix_b89():
    plain = sequence(temperature=0)
    penal = sequence(prompt=(6, 6), temperature=0, repetition_penalty=1.8)
    for rows in ([plain, penal], [penal, plain]):
        logits = LOGITS.repeat(2, 1)
        tokens = choose_tokens(logits, rows)
        assert tokens == [6 if row is plain else 3 for row in rows]


def test_a_request_that_excludes_everything_ends_and_its_neighbour_does_not_b88():
    nothing = sequence(eos=range(V), min_tokens=1, temperature=0)
    fault, token = choose_tokens(LOGITS.repeat(2, 1), [nothing, sequence(temperature=0)])
    assert "no token is left to choose" in FAULTS[fault]
    assert token == 6


def test_all_tokens_at_the_lowest_bias_still_give_a_token_b85():
    bias = dict.fromkeys(range(V), -100)
    (token,) = choose_tokens(LOGITS[None], [sequence(logit_bias=bias, seed=1)])
    assert 0 <= token < V


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_logits_are_adjusted_in_float32(dtype):
    got = adjust(LOGITS[None].to(dtype), [sequence(logit_bias={0: 1e-4})])
    assert got.dtype is torch.float32
    assert got[0, 0] > 1


@pytest.mark.parametrize(
    "params",
    [{"repetition_penalty": 2.0}, {"frequency_penalty": 0.5}, {"presence_penalty": 1.5}],
    ids=lambda params: next(iter(params)),
)
@pytest.mark.parametrize("last", [4, 0, 1])
def test_a_pending_token_counts_as_if_it_were_known(params, last):
    """Only the device has it, when the step before is under way."""
    known = sequence(output=(4, last), **params)
    pending = sequence(output=(4,), **params)
    pending.num_pending = 1
    choice = Choice.of(pending)
    assert choice.output_ids == (4,)
    got = adjusting.adjust(LOGITS[None], [choice], torch.tensor([last]))
    assert torch.equal(got[0], adjusted(known))


def test_a_pending_token_counts_for_the_minimum_length():
    pending = sequence(output=(4,), eos=(6,), min_tokens=2)
    pending.num_pending = 1
    assert adjusted(pending).equal(LOGITS)
