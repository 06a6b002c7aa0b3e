"""Speculation on a tiny model: the very answers that there are without it, whatever is guessed.

In float64 a token does not depend on who else was in its batch, or in its step: answers are
compared exactly.
"""

import pytest
import torch

from minillm_serve import SamplingParams
from minillm_serve.runtime.kv_cache import KVCache
from minillm_serve.runtime.spec.eagle import EagleDrafter
from tests.llm.scripted import Scripted, ask, check_same
from tests.models.tiny import VOCAB, prompt
from tests.spec.by_hand import make_head

COMMON = prompt(21, seed=1)


def params(**options):
    return SamplingParams(**{"temperature": 0, "max_tokens": 24, "ignore_eos": True, **options})


#: Everything that a request can ask for, each beside all the others.
ASKED = [
    (prompt(2, seed=2), params()),
    (prompt(30, seed=3), params(temperature=1, seed=3)),
    (COMMON, params(temperature=2, seed=4, top_k=20, top_p=0.9, min_p=0.01)),
    (COMMON[:18], params(presence_penalty=1.0, frequency_penalty=0.7, logprobs=2)),
    (COMMON[:16], params(temperature=1, seed=5, repetition_penalty=1.5, logprobs=0)),
    (prompt(9, seed=6), params(logit_bias={3: 5.0, 40: -100.0}, logprobs=3)),
    (COMMON, params(prompt_logprobs=2, logprobs=1, max_tokens=9)),
    (prompt(7, seed=8), params(max_tokens=1)),
    (COMMON[:15], params(n=3, temperature=1, seed=9, max_tokens=16)),
    (prompt(5, seed=10), params(temperature=2, seed=10, ignore_eos=False, min_tokens=12)),
    (
        prompt(4, seed=11),
        params(temperature=2, seed=7, stop_token_ids=[*range(20, 60)], min_tokens=9),
    ),
    (prompt(12, seed=12), params(max_tokens=None)),
    (prompt(6, seed=13), params(temperature=1, seed=9, stop=["e", "T"], logprobs=0)),
]
PROMPTS, PARAMS = [ids for ids, _ in ASKED], [asked for _, asked in ASKED]


@pytest.fixture(scope="module")
def plain(make_exact):
    return ask(make_exact(), PROMPTS, PARAMS)


def test_the_answers_that_are_compared_end_in_every_way(plain):
    ends = {(a.finish_reason, type(a.stop_reason)) for o in plain for a in o.outputs}
    assert ends == {("length", type(None)), ("stop", int), ("stop", str), ("stop", type(None))}
    assert len(plain[11].prompt_token_ids) + len(plain[11].outputs[0].token_ids) == 64


ENGINES = {
    "as it is": {},
    "chunks smaller than the prompts": {"max_num_batched_tokens": 9},
    "few at a time": {"max_num_seqs": 3, "prefix_cache": "radix"},
    "no prefix cache": {"prefix_cache": None, "attention_backend": "naive"},
    "preempted and computed again": {"num_blocks": 26, "prefix_cache": "radix"},
    "preempted and swapped": {"num_blocks": 26, "swap_space": 2**20, "preemption": "swap"},
    "static": {"scheduler": "static", "max_num_seqs": 5},
    "dynamic": {"scheduler": "dynamic", "policy": "sjf", "max_num_seqs": 5},
    "preempted by priority": {"policy": "priority", "num_blocks": 30, "max_num_seqs": 6},
}
GUESSES = {
    "right": [True],
    "wrong": [False],
    "last of four wrong": [True, True, True, False],
    "often right": 0.7,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("guess", GUESSES)
def test_no_guess_changes_an_answer_under_any_scheduler_cache_or_preemption_b29_b56_b63_b64(
    speculate, plain, engine, guess
):
    """B29, B56, B63, B64: all kinds of requests in one batch, with five drafts, and with one."""
    for most in (5, 1) if engine == "as it is" else (5,):
        llm = speculate(Scripted(plain, GUESSES[guess]), most, **ENGINES[engine])
        priority = [number % 3 for number in range(len(PROMPTS))]
        check_same(ask(llm, PROMPTS, PARAMS, priority=priority), plain)
        stats, scheduler = llm.spec_stats, llm.engine.scheduler
        assert stats.num_drafts > 10
        if guess == "right":
            assert stats.acceptance_rate > 0.9  # it does not know what would follow an end
        if guess == "wrong":
            assert stats.num_accepted_tokens == 0
        assert (scheduler.num_preemptions > 0) == engine.startswith("preempted")
        if "swap_space" in ENGINES[engine]:
            assert scheduler.num_swaps > 0


METHODS = {
    "ngram": {"method": "ngram", "prompt_lookup_min": 1},
    "early exit": {"method": "early_exit", "draft_layers": 2},
    "no exit": {"method": "early_exit", "draft_layers": 3},
    "draft model": {"method": "draft_model"},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("engine", "adaptive"),
    [
        ("as it is", True),
        ("as it is", False),
        ("preempted and computed again", False),
        ("preempted and swapped", False),
    ],
)
def test_no_drafter_of_ours_changes_an_answer(
    make_exact, plain, tiny_dir, method, engine, adaptive
):
    config = {**METHODS[method], "adaptive": adaptive}
    if method == "draft model":
        config["model"] = tiny_dir
    llm = make_exact(speculative_config=config, **ENGINES[engine])
    check_same(ask(llm, PROMPTS, PARAMS), plain)
    if engine == "as it is":
        check_same(ask(llm, PROMPTS, PARAMS), plain)
    if not adaptive:
        assert llm.spec_stats.num_accepted_tokens > 3


@pytest.mark.parametrize("cache", ["hash", None])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_blocks": 26, "swap_space": 2**20, "preemption": "swap"}, {"num_blocks": 26}],
    ids=str,
)
def test_what_a_draft_model_has_read_is_copied_and_swapped_as_the_models_own_is(
    make_exact, tiny_dir, options, cache
):
    """It is the model itself here, so that all that it guesses is right, unless its KV is wrong.

    (Of blocks that are found in a prefix cache it may not have read every token.)
    """
    config = {"method": "draft_model", "model": tiny_dir, "adaptive": False}
    llm = make_exact(speculative_config=config, prefix_cache=cache, **options)
    prompts = [COMMON[:n] for n in (21, 18, 14)] + [prompt(n, seed=n) for n in (3, 6, 11, 15)]
    ask(llm, prompts, params(n=3))
    assert llm.spec_stats.num_drafts > 50
    lost_and_found = cache and llm.engine.scheduler.num_preemptions > llm.engine.scheduler.num_swaps
    assert llm.spec_stats.acceptance_rate >= (0.8 if lost_and_found else 1)
    assert (llm.engine.scheduler.num_preemptions > 0) == ("num_blocks" in options)


def test_no_head_changes_an_answer(speculate, plain):
    llm = speculate(None)
    executor = llm.engine.executor
    head = make_head(executor.model)
    cache = KVCache.allocate(
        head.config, num_blocks=300, block_size=4, dtype=torch.float64, device=executor.device
    )
    executor.drafter = EagleDrafter(
        head, executor.model.embedding, cache, executor.backend, vocab_size=VOCAB
    )
    check_same(ask(llm, PROMPTS, PARAMS), plain)
    check_same(ask(llm, PROMPTS, PARAMS), plain)
    assert llm.spec_stats.num_drafts > 30
