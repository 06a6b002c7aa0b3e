"""Engines on quantized weights: alone or in a batch, whole steps or layer by layer, with drafts."""

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.models.fused import FusedLayers
from tests.llm.tiny import save_tiny
from tests.models.tiny import prompt

WIDE = {"hidden_size": 64, "intermediate_size": 96}
PROMPTS = [prompt(length, seed=length) for length in (1, 5, 17, 30, 3, 40, 8, 21, 11)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module", params=["llama", "mistral"])
def wide_dir(request, tmp_path_factory):
    window = {"sliding_window": 9} if request.param == "mistral" else {}
    directory = tmp_path_factory.mktemp(request.param)
    return save_tiny(directory, request.param, **WIDE, **window)


def make(directory, scheme, **options) -> LLM:
    options = {"num_blocks": 200, "block_size": 4, "max_model_len": 64, **options}
    return LLM(directory, quantization=scheme, debug_invariants=True, **options)


def answers(llm, prompts=PROMPTS):
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert not any(output.outputs[0].error for output in outputs)
    return [output.outputs[0] for output in outputs]


def tokens(llm, prompts=PROMPTS):
    return [answer.token_ids for answer in answers(llm, prompts)]


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_an_answer_is_the_same_to_the_last_bit_alone_and_in_a_batch(wide_dir, scheme):
    together = answers(make(wide_dir, scheme))
    alone = make(wide_dir, scheme)
    for ids, answer in zip(PROMPTS, together, strict=True):
        (single,) = answers(alone, [ids])
        assert single.token_ids == answer.token_ids
        assert single.logprobs == answer.logprobs


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_whole_steps_give_what_layers_give_one_by_one(wide_dir, scheme):
    whole = make(wide_dir, scheme)
    assert isinstance(whole.engine.executor.model.run_layers, FusedLayers)
    counted = Counted(whole)
    by_layer = make(wide_dir, scheme)
    by_layer.engine.executor.model.run_layers._all = None
    assert tokens(whole) == tokens(by_layer)
    assert counted.steps >= 11


class Counted:
    """Counts the steps that ran as one function."""

    def __init__(self, llm):
        layers = llm.engine.executor.model.run_layers
        self.steps, self._run = 0, layers._all
        layers._all = self

    def __call__(self, *arguments):
        self.steps += 1
        return self._run(*arguments)


@pytest.mark.parametrize("method", ["ngram", "early_exit"])
def test_drafts_change_no_answer(wide_dir, method):
    config = {"method": method, "num_speculative_tokens": 3, "adaptive": False}
    with_drafts = make(wide_dir, "int8", speculative_config=config)
    assert tokens(with_drafts) == tokens(make(wide_dir, "int8"))
    assert with_drafts.spec_stats.num_accepted_tokens > 0


def test_another_attention_backend_gives_the_same_answers(wide_dir):
    found = tokens(make(wide_dir, "int8", attention_backend="torch"))
    assert found == tokens(make(wide_dir, "int8", attention_backend="cpu"))


def test_answers_are_mostly_those_of_the_weights_in_floats(tmp_path):
    """A tiny random model answers near ties only, so most is all that can be asked."""
    directory = save_tiny(tmp_path, **WIDE)
    whole, few = (tokens(make(directory, scheme)) for scheme in (None, "int8"))
    firsts = [a[0] == b[0] for a, b in zip(whole, few, strict=True)]
    assert sum(firsts) >= len(firsts) - 2


def test_an_8_bit_kv_cache_goes_together_with_8_bit_weights(wide_dir):
    found = tokens(make(wide_dir, "int8", kv_cache_dtype="int8"))
    plain = tokens(make(wide_dir, "int8"))
    assert [len(ids) for ids in found] == [len(ids) for ids in plain]
    assert sum(a[0] == b[0] for a, b in zip(found, plain, strict=True)) >= len(PROMPTS) - 2


def test_a_model_that_gives_no_numbers_is_told_as_an_error(wide_dir):
    llm = make(wide_dir, "int8")
    llm.engine.executor.model.norm.weight.data[3] = torch.nan
    (output,) = llm.generate([PROMPTS[0]], GREEDY, use_tqdm=False)
    assert "not finite" in output.outputs[0].error
