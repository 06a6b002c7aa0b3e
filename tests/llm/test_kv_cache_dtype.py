"""Engines with a KV cache in 8 bits: what fits, what is answered, and what changes no answer.

A token's keys and values are quantized once, when they are written, and a step attends to what is
stored, its own rows included. So in float64 nothing about a step's other rows can show in a token.
"""

from importlib.resources import files

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import PartError
from minillm_serve.core.invariants import check_idle
from minillm_serve.quality.losses import compare
from minillm_serve.quality.reading import Reader
from minillm_serve.runtime.kv_quantizer import KV_CACHE_DTYPES
from tests.llm.parts_right import my_attention
from tests.models.tiny import prompt

KINDS = ["int8", "fp8"]
COMMON = prompt(21, seed=1)
PROMPTS = [*([*COMMON[: 21 - i], *prompt(i, seed=i)] for i in range(1, 5)), prompt(40, seed=9)]
#: How far log probabilities are from those over whole numbers, in a model of random weights.
CLOSE = {"int8": 0.05, "fp8": 0.5}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PARAMS = [SamplingParams(max_tokens=9 + 2 * i, ignore_eos=True, seed=i) for i in range(5)]

kinds = pytest.mark.parametrize("kind", KINDS)


def answers(llm, prompts=PROMPTS, params=PARAMS):
    outputs = llm.generate(prompts, params, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    return [[answer.token_ids for answer in output.outputs] for output in outputs]


@pytest.fixture(scope="module")
def undisturbed(make_exact):
    """One after the other, each prompt in one step, nothing shared."""
    return {
        kind: answers(make_exact(kv_cache_dtype=kind, prefix_cache=None, max_num_seqs=1))
        for kind in KINDS
    }


DISTURBED = {
    "chunks of 4": {"max_num_batched_tokens": 4},
    "copied on write, shared": {},
    "swapped": {"num_blocks": 18, "swap_space": 2**20, "preemption": "swap"},
    "computed again": {"num_blocks": 18, "preemption": "recompute"},
    "overlapped": {"async_scheduling": True},
    "radix": {"prefix_cache": "radix", "num_blocks": 24},
    "naive": {"attention_backend": "naive"},
    "drafts": {"speculative_config": {"method": "ngram", "adaptive": False}},
}


@kinds
@pytest.mark.parametrize("options", DISTURBED.values(), ids=DISTURBED)
def test_nothing_that_is_copied_or_cut_changes_an_answer_b127_b128(
    make_exact, undisturbed, kind, options
):
    """B127: scales go wherever blocks go. B128: chunks see their own tokens as all others do."""
    llm = make_exact(kv_cache_dtype=kind, **options)
    for _ in range(2):  # the second time, prompts are in the cache
        assert answers(llm) == undisturbed[kind]
    assert llm.prefix_stats.hits > 0
    if "preemption" in options:
        assert llm.engine.scheduler.num_preemptions > 0


@kinds
def test_siblings_write_to_copies_of_their_common_block_b127(make_exact, kind):
    """Three answers share a half full block, whose scales each of them then has for itself."""
    params = {"max_tokens": 12, "ignore_eos": True, "temperature": 1.0}
    llm = make_exact(kv_cache_dtype=kind)
    copied = []
    copy_blocks = type(llm.kv_cache).copy_blocks

    def copy(cache, moves):
        copied.extend(moves)
        copy_blocks(cache, moves)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(llm.kv_cache), "copy_blocks", copy)
        (several,) = answers(llm, [COMMON[:14]], [SamplingParams(n=3, seed=5, **params)])
    assert copied
    alone = make_exact(kv_cache_dtype=kind, prefix_cache=None, max_num_seqs=1)
    asked = [SamplingParams(seed=5 + i, **params) for i in range(3)]
    assert several == [tokens for (tokens,) in answers(alone, [COMMON[:14]] * 3, asked)]


@kinds
def test_the_option_reaches_the_cache_and_shows_in_the_numbers_b125(make_exact, kind):
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=1)

    def told(llm):
        """The log probability of each answer's first token."""
        outputs = llm.generate(PROMPTS, params, use_tqdm=False)
        places = [output.outputs[0].logprobs[0] for output in outputs]
        return torch.tensor([next(iter(place.values())).logprob for place in places])

    plain, coded = make_exact(), make_exact(kv_cache_dtype=kind)
    assert plain.kv_cache.k[0].dtype == torch.float64
    assert not plain.kv_cache.k_scale
    cache, config = coded.kv_cache, coded.model_config
    assert cache.k[0].dtype == cache.v[-1].dtype == KV_CACHE_DTYPES[kind]
    assert cache.k_scale[0].shape == cache.k[0].shape[:3]
    assert cache.nbytes == 300 * 4 * config.kv_bytes_per_token(1 + 4 / config.head_dim)
    want, got = told(plain), told(coded)
    assert not torch.equal(got, want)
    torch.testing.assert_close(got, want, rtol=0, atol=CLOSE[kind])


@kinds
def test_log_probabilities_of_a_prompt_in_chunks_are_finite_and_close_b128(make_exact, kind):
    """A prompt of 12 tokens in chunks of 4."""
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, prompt_logprobs=0)

    def told(**options):
        (output,) = make_exact(**options).generate([COMMON[:12]], params, use_tqdm=False)
        places = [next(iter(place.values())).logprob for place in output.prompt_logprobs[1:]]
        return torch.tensor(places, dtype=torch.float64)

    chunked = told(kv_cache_dtype=kind, max_num_batched_tokens=4)
    assert chunked.isfinite().all()
    torch.testing.assert_close(chunked, told(kv_cache_dtype=kind), rtol=0, atol=1e-9)
    torch.testing.assert_close(chunked, told(max_num_batched_tokens=4), rtol=0, atol=CLOSE[kind])


@kinds
def test_the_memory_that_is_promised_is_what_is_taken_and_holds_more_b125_b131(make_llm, kind):
    """B131: the pool's bytes stay within what was given, and with 8 bits it has more blocks."""
    memory = 400_000
    pools = {
        name: make_llm(kv_cache_memory=memory, kv_cache_dtype=name, dtype=dtype).kv_cache
        for name, dtype in (("auto", "bfloat16"), (kind, "bfloat16"))
    }
    for pool in pools.values():
        assert memory - pool.nbytes // pool.num_blocks < pool.nbytes <= memory
    head_dim = pools[kind].k[0].shape[-1]
    ratio = pools[kind].num_blocks / pools["auto"].num_blocks
    assert ratio == pytest.approx(2 / (1 + 4 / head_dim), rel=0.02)


@kinds
@pytest.mark.parametrize("tokens", [1024, 4096, 8192])
def test_contexts_of_any_length_take_as_many_bytes_less_b131(make_llm, kind, tokens):
    """B131: all that a context takes lies in the pool, which is taken whole and at once."""
    blocks = {"num_blocks": tokens // 16, "dtype": "bfloat16"}
    plain = make_llm(**blocks).kv_cache
    coded = make_llm(kv_cache_dtype=kind, **blocks).kv_cache
    held = sum(x.nbytes for x in (*coded.k, *coded.v, *coded.k_scale, *coded.v_scale))
    assert coded.nbytes == held
    head_dim = plain.k[0].shape[-1]
    assert held == plain.nbytes * (1 + 4 / head_dim) / 2


@kinds
def test_cost_of_blocks_in_host_memory_counts_their_scales_b131(make_exact, kind):
    llm = make_exact(kv_cache_dtype=kind, swap_space=10_000, preemption="swap", num_blocks=18)
    (host,) = llm.engine.executor.host_blocks
    one = llm.kv_cache.nbytes // llm.kv_cache.num_blocks
    assert host.nbytes == 10_000 // one * one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_cache_dtype": "int4"}, "kv_cache_dtype='int4' is unknown: choose from auto, int8"),
        ({"parts": {"kv_quantizer": object}}, "kv_cache_dtype='auto' quantizes nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(tiny_dir, options, message):
    with pytest.raises(ValueError, match=message):
        LLM(tiny_dir, **options)


def test_attention_of_somebody_s_own_that_reads_no_codes_is_refused_by_name(make_llm):
    with pytest.raises(PartError, match=r"reads no KV cache of torch\.int8"):
        make_llm(kv_cache_dtype="int8", parts={"attention": my_attention})


def test_a_draft_model_keeps_its_own_keys_as_they_are(make_exact, tiny_dir):
    drafting = {"method": "draft_model", "model": str(tiny_dir), "adaptive": False}
    llm = make_exact(kv_cache_dtype="int8", speculative_config=drafting)
    own = llm.engine.executor.drafter.kv_cache
    assert own.k[0].dtype == torch.float64
    want = answers(make_exact(kv_cache_dtype="int8"), params=GREEDY)
    assert answers(llm, params=GREEDY) == want


@pytest.mark.model
def test_the_embedded_model_loses_next_to_nothing_and_has_room_for_more_users():
    """Within 0.5 % of the perplexity, in 0.55 of the bytes, for 1.8 times the users."""
    text = (files("minillm_serve.quality") / "texts" / "the_ferry.txt").read_text("utf-8")
    perplexity, blocks = {}, {}
    for kind in KV_CACHE_DTYPES:
        llm = LLM(kv_cache_dtype=kind, kv_cache_memory=2**25)
        ids = list(llm.tokenizer.encode(text))[:512]
        reading = Reader.of(llm).read(ids)
        perplexity[kind] = compare(reading, reading).perplexity
        blocks[kind] = llm.kv_cache.num_blocks
        if kind != "auto":
            per_token = llm.kv_cache.nbytes / llm.kv_cache.num_blocks / llm.kv_cache.block_size
            assert per_token <= 0.55 * llm.model_config.kv_bytes_per_token(2)
    assert perplexity["int8"] == pytest.approx(perplexity["auto"], rel=0.005)
    assert perplexity["fp8"] == pytest.approx(perplexity["auto"], rel=0.05)
    assert blocks["int8"] >= 2 * 1.8 * blocks["auto"]  # "auto" is float32 on a CPU
