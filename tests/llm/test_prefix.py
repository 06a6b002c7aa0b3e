"""Prefix caches and several answers, on real models: the same tokens, and less computed.

In float64 a token does not depend on who else was in its batch: answers are compared exactly.
"""

from itertools import pairwise

import pytest

from minillm_serve import LLM, SamplingParams
from minillm_serve.core.invariants import check_idle
from tests.llm.test_parity import NEAR_TIE
from tests.models.tiny import prompt

CACHES = ["hash", "radix"]
COMMON = prompt(29, seed=1)
PROMPTS = [
    *([*COMMON[: 29 - i], *prompt(i, seed=i)] for i in range(1, 9)),
    *(prompt(5 + i, seed=20 + i) for i in range(3)),
    COMMON,
    COMMON,
    COMMON[:16],
]
PARAMS = [
    SamplingParams(max_tokens=3 + (5 * i) % 17, ignore_eos=True, seed=i, temperature=i % 3)
    for i in range(len(PROMPTS))
]
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def make(tiny_dir):
    def build(**options):
        options = {"dtype": "float64", "block_size": 4, "num_blocks": 200, **options}
        return LLM(tiny_dir, debug_invariants=True, **options)

    return build


def answers(llm, prompts=PROMPTS, params=PARAMS, **options):
    outputs = llm.generate(prompts, params, use_tqdm=False, **options)
    check_idle(llm.engine.scheduler)
    return [[answer.token_ids for answer in output.outputs] for output in outputs]


def cached(llm, prompts, params=GREEDY, **options):
    outputs = llm.generate(prompts, params, use_tqdm=False, **options)
    return [output.num_cached_tokens for output in outputs]


@pytest.fixture(scope="module")
def without(make):
    return answers(make(prefix_cache=None))


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("backend", ["naive", "torch"])
def test_cold_warm_and_without_a_cache_the_tokens_are_the_same_b22_b23(
    make, without, cache, backend
):
    """B22, B23: positions, masks and blocks are right wherever the computation begins."""
    llm = make(prefix_cache=cache, attention_backend=backend)
    assert answers(llm) == without
    cold = llm.prefix_stats
    assert answers(llm) == without
    warm = llm.prefix_stats
    assert warm.hits - cold.hits > cold.hits > 0
    assert warm.num_live == 0
    assert llm.reset_prefix_cache()
    assert llm.prefix_stats.num_cached == 0
    assert answers(llm) == without


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": "static"},
        {"scheduler": "dynamic", "async_scheduling": True},
        {"async_scheduling": True, "num_blocks": 30},
        {"num_blocks": 24, "max_num_batched_tokens": 9},
        {"num_blocks": 24, "swap_space": 2**20, "preemption": "swap"},
    ],
    ids=str,
)
def test_neither_schedulers_nor_little_memory_change_an_answer(make, without, cache, options):
    llm = make(prefix_cache=cache, max_num_seqs=6, **options)
    assert answers(llm) == without
    assert answers(llm) == without


@pytest.mark.parametrize("cache", [*CACHES, None])
@pytest.mark.parametrize("scheduler", ["continuous", "static"])
@pytest.mark.parametrize("overlapped", [False, True])
def test_n_answers_are_those_of_n_requests_with_the_next_seeds_b92(
    make, cache, scheduler, overlapped
):
    """B92: seed + index; and each sibling goes on from blocks that it shares."""
    params = {"max_tokens": 12, "ignore_eos": True, "temperature": 1.0}
    llm = make(prefix_cache=cache, scheduler=scheduler, async_scheduling=overlapped)
    asked = [COMMON, COMMON[:7], COMMON[:8]]
    seeds = (5, 100, 7)
    several = answers(llm, asked, [SamplingParams(n=3, seed=seed, **params) for seed in seeds])
    one_by_one = answers(
        make(prefix_cache=None),
        [ids for ids in asked for _ in range(3)],
        [SamplingParams(seed=seed + i, **params) for seed in seeds for i in range(3)],
    )
    assert [tokens for output in several for tokens in output] == [t for (t,) in one_by_one]
    assert several[0][0] != several[0][1]
    assert answers(llm, asked, [SamplingParams(n=3, seed=s, **params) for s in seeds]) == several


def test_n_answers_have_texts_and_numbers_of_their_own(make):
    llm = make()
    params = SamplingParams(n=3, seed=1, max_tokens=9, logprobs=0, prompt_logprobs=1)
    (output,) = llm.generate([COMMON], params, use_tqdm=False)
    assert [answer.index for answer in output.outputs] == [0, 1, 2]
    assert len({answer.text for answer in output.outputs}) == 3
    for answer in output.outputs:
        assert answer.finish_reason is not None
        assert len(answer.logprobs) == len(answer.token_ids) == len(answer.text_offsets)
    assert len(output.prompt_logprobs) == len(COMMON)
    assert output.metrics.num_output_tokens == sum(len(a.token_ids) for a in output.outputs)


def test_a_stop_string_ends_its_own_answer_alone(make):
    llm = make()
    params = {"n": 3, "seed": 1, "max_tokens": 30, "ignore_eos": True}
    (free,) = llm.generate([COMMON], SamplingParams(**params), use_tqdm=False)
    texts = [answer.text for answer in free.outputs]
    stop = next(
        texts[0][i : i + 2]
        for i in range(4, 28)
        if texts[0][i : i + 2] not in texts[1] + texts[2] and "\ufffd" not in texts[0][: i + 2]
    )
    (output,) = llm.generate([COMMON], SamplingParams(stop=stop, **params), use_tqdm=False)
    assert output.outputs[0].text == texts[0][: texts[0].index(stop)]
    assert [answer.text for answer in output.outputs[1:]] == texts[1:]
    assert [answer.finish_reason for answer in output.outputs] == ["stop", "length", "length"]
    check_idle(llm.engine.scheduler)


def test_a_stream_has_one_answer(make):
    llm = make()
    with pytest.raises(ValueError, match=r"n=2: a stream has one text; .* use generate\(\)"):
        llm.stream(COMMON, SamplingParams(n=2))
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize("cache", CACHES)
def test_prompt_logprobs_are_whole_however_much_is_cached_b20(make, cache):
    """B20: such requests read no cache; yet they leave their blocks to others."""
    llm = make(prefix_cache=cache)
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=1)
    outputs = [llm.generate([COMMON[:9]], params, use_tqdm=False)[0] for _ in range(2)]
    for output in outputs:
        assert output.num_cached_tokens == 0
        assert output.prompt_logprobs[0] is None
        assert len(output.prompt_logprobs) == 9
    assert outputs[0].prompt_logprobs == outputs[1].prompt_logprobs
    assert llm.prefix_stats.queries == 0
    assert cached(llm, [COMMON[:9]]) == [8]


def test_a_salt_keeps_tenants_apart_b19(make):
    """B19: and `reset_prefix_cache` forgets all of them."""
    llm = make()
    assert cached(llm, [COMMON], cache_salt="x") == [0]
    assert cached(llm, [COMMON, COMMON], cache_salt=["x", None]) == [28, 0]
    assert cached(llm, [COMMON]) == [28]
    with pytest.raises(ValueError, match="1 cache salts for 2 prompts"):
        llm.generate([COMMON, COMMON], GREEDY, cache_salt=["x"], use_tqdm=False)
    for wrong in (3, b"xy", {"x": 1}):
        with pytest.raises(ValueError, match="cache_salt="):
            llm.generate([COMMON, COMMON], GREEDY, cache_salt=wrong, use_tqdm=False)
    list(llm.stream(COMMON, GREEDY, cache_salt="y"))
    assert cached(llm, [COMMON], cache_salt="z") == [0]
    assert cached(llm, [COMMON], cache_salt="y") == [28]


def test_a_chat_finds_the_turns_before(make):
    llm, messages, found = make(max_model_len=512), [], []
    for turn in range(4):
        messages.append({"role": "user", "content": f"Question {turn}?"})
        (output,) = llm.chat(messages, GREEDY, use_tqdm=False, cache_salt="tenant")
        found.append((output.num_cached_tokens, len(output.prompt_token_ids)))
        messages.append({"role": "assistant", "content": output.outputs[0].text})
    assert found[0][0] == 0
    assert all(later[0] > before[0] for before, later in pairwise(found))
    # Everything up to the last question is there, save for what fills no block.
    assert all(hits > length - 40 for hits, length in found[1:])


def test_identical_prompts_of_one_call_are_computed_once(make):
    llm, steps = make(), []
    llm.engine.on_step = steps.append
    assert cached(llm, [COMMON] * 4) == [0, 28, 28, 28]
    assert steps[0].num_tokens == 29 + 3


def test_nothing_is_reset_while_a_stream_is_open(make):
    llm = make()
    with llm.stream(COMMON, GREEDY) as pieces:
        next(pieces)
        assert not llm.reset_prefix_cache()
    assert llm.reset_prefix_cache()


def test_in_low_precision_the_numbers_are_close_whatever_is_cached_b23(make):
    """B23: the order of sums differs, so bfloat16 promises no more than this."""
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=5)
    plain, llm = make(prefix_cache=None, dtype="bfloat16"), make(dtype="bfloat16")
    seen = []
    for engine in (plain, llm, llm):
        (output,) = engine.generate([COMMON], params, use_tqdm=False)
        seen.append(output.outputs[0].logprobs[0])
    for other in seen[1:]:
        for token in seen[0].keys() & other.keys():
            assert other[token].logprob == pytest.approx(seen[0][token].logprob, abs=0.1)
    assert llm.prefix_stats.hits == 28


def test_an_unknown_cache_is_refused_by_name(make):
    with pytest.raises(ValueError, match=r"prefix_cache='tree' is unknown: choose from .*radix"):
        make(prefix_cache="tree")


@pytest.mark.model
@pytest.mark.parametrize("cache", CACHES)
def test_the_embedded_model_answers_alike_cold_warm_and_without_a_cache_b22_b23(cache):
    """B22, B23: in float32, unless two logits tie; 40 tokens, in blocks of 16."""
    text = (
        "The old lighthouse keeper climbed the stairs every evening, lit the lamp and wrote down "
    )
    plain = LLM(prefix_cache=None, num_blocks=32)
    llm = LLM(prefix_cache=cache, num_blocks=32, debug_invariants=True)
    beginning = plain.tokenizer.encode(text * 3)[:40]
    suffixes = [plain.tokenizer.encode(s) for s in (" the weather.", " what he had seen.")]
    asked = [beginning, beginning, *(beginning[:36] + suffix for suffix in suffixes)]
    params = SamplingParams(temperature=0, max_tokens=16, logprobs=2, ignore_eos=True)
    found = []
    for ids in asked:
        (wanted,) = plain.generate([ids], params, use_tqdm=False)
        (got,) = llm.generate([ids], params, use_tqdm=False)
        found.append(got.num_cached_tokens)
        pairs = zip(wanted.outputs[0].token_ids, got.outputs[0].token_ids, strict=True)
        differs = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if differs is not None:
            best, second = sorted(
                (entry.logprob for entry in wanted.outputs[0].logprobs[differs].values()),
                reverse=True,
            )[:2]
            assert best - second < NEAR_TIE
    assert found == [0, 32, 32, 32]
