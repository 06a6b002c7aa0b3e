"""Requests without a seed, and drafts that are drawn: the distribution of tokens stays the same.

Of three tokens in a row, against exact chances: all texts that there are of four tokens.
"""

from itertools import product

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import Request, Sequence
from minillm_serve.core.invariants import check_idle
from minillm_serve.runtime.sampling.adjust import adjust
from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.sampler import distributions
from minillm_serve.runtime.spec.accept import accept
from tests.llm.scripted import Always, Draws
from tests.models.tiny import VOCAB, our_logits, prompt

PROMPT = prompt(9, seed=4)
TOKENS = (11, 12, 13, 14)
#: Half of what is drafted is far from what the model says, and some of it is impossible.
Q = [0.0] * VOCAB
Q[11], Q[12], Q[13], Q[14], Q[50] = 0.15, 0.4, 0.1, 0.25, 0.1
KINDS = {
    "hot": {"temperature": 2.5},
    "filtered": {"temperature": 1.5, "top_k": 3, "top_p": 0.9},
    "penalised": {"temperature": 2.0, "frequency_penalty": 1.5, "repetition_penalty": 1.3},
}


def params(**options):
    bias = {token: 0.0 if token in TOKENS else -100.0 for token in range(VOCAB)}
    return SamplingParams(max_tokens=3, ignore_eos=True, logit_bias=bias, **options)


@pytest.fixture(scope="module")
def model(tiny_dir):
    return LLM(tiny_dir, num_blocks=8).engine.executor.model


def chances(model, **options):
    """How likely each text of three tokens is, [4, 4, 4], by one run of the model for each."""

    def next_token(text):
        asked = Request(request_id="r", prompt_token_ids=tuple(PROMPT), params=params(**options))
        sequence = Sequence(asked)
        sequence.token_ids += text
        with torch.inference_mode():
            logits = our_logits(model, sequence.token_ids)[-1:].clone()
        choices = [Choice.of(sequence)]
        probs = distributions(adjust(logits, choices, torch.tensor([0])), choices)[0]
        return probs[list(TOKENS)].double()

    table = torch.empty(4, 4, 4, dtype=torch.float64)
    first = next_token(())
    for a in range(4):
        second = next_token(TOKENS[a : a + 1])
        for b in range(4):
            third = next_token((TOKENS[a], TOKENS[b]))
            table[a, b] = first[a] * second[b] * third
    return table / table.sum()


def count_texts(llm, num_texts, **options):
    """How often each text of three tokens was given, [4, 4, 4]."""
    asked, counts = params(n=500, **options), torch.zeros(4, 4, 4)
    for _ in range(num_texts // 2000):
        outputs = llm.generate([PROMPT] * 4, asked, use_tqdm=False)
        for answer in (answer for output in outputs for answer in output.outputs):
            counts[tuple(TOKENS.index(token) for token in answer.token_ids)] += 1
    check_idle(llm.engine.scheduler)
    return counts


def check_texts(counts, expected):
    """Chi-square over all texts; those that are rarest are counted together."""
    counts, expected = counts.flatten(), expected.flatten()
    rare = expected * counts.sum() < 10
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    assert len(counts) > 8
    return p_value(counts, expected)


@pytest.fixture
def speculate(tiny_dir):
    def make(drafter, **options):
        config = {"method": "ngram", "num_speculative_tokens": 2, "adaptive": False}
        llm = LLM(
            tiny_dir,
            speculative_config=config,
            num_blocks=2100,
            max_num_seqs=500,
            max_num_batched_tokens=2000,
            **options,
        )
        llm.engine.executor.drafter = drafter
        return llm

    return make


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_texts", [4_000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_three_tokens_are_distributed_as_the_model_s_own_whatever_is_drawn_b62(
    model, speculate, kind, num_texts
):
    """B62: the very q that was drawn from, and the p that there would be without drafts."""
    llm = speculate(Draws(Q))
    counts = count_texts(llm, num_texts, **KINDS[kind])
    assert counts.sum() == num_texts
    assert check_texts(counts, chances(model, **KINDS[kind])) > 1e-4
    stats = llm.spec_stats
    assert stats.num_drafts > num_texts / 2
    assert 0.3 < stats.acceptance_rate < 0.95


def test_an_accept_part_of_ones_own_decides_on_certain_drafts_too_b62(model, speculate):
    """B62: whose q is 1 at the draft."""
    llm = speculate(Always(12), parts={"accept": accept})
    counts = count_texts(llm, 4_000, **KINDS["hot"])
    assert check_texts(counts, chances(model, **KINDS["hot"])) > 1e-4
    assert llm.spec_stats.num_accepted_tokens > 100


def test_a_q_that_is_not_what_was_drawn_from_is_noticed_b62(model, speculate):
    """B62: what is tested above can fail."""
    told = [0.0] * VOCAB
    told[11], told[12], told[13], told[14], told[50] = 0.1, 0.1, 0.3, 0.4, 0.1
    counts = count_texts(speculate(Draws(Q, told)), 2_000, **KINDS["hot"])
    assert check_texts(counts, chances(model, **KINDS["hot"])) < 1e-9


def test_the_chances_are_those_of_an_engine_that_drafts_nothing(model, tiny_dir):
    llm = LLM(tiny_dir, num_blocks=2100, max_num_seqs=500, max_num_batched_tokens=2000)
    counts = count_texts(llm, 4_000, **KINDS["penalised"])
    expected = chances(model, **KINDS["penalised"])
    assert check_texts(counts, expected) > 1e-4
    assert all(expected[text] > 0 for text in product(range(4), repeat=3))
