"""Reading: what the engine expects, through the cache that the engine has."""

from dataclasses import replace

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.quality.losses import Losses, compare
from minillm_serve.quality.reading import Reader
from minillm_serve.quality.rounding import by_floor, by_quantizer, by_row, by_tensor, storing
from minillm_serve.runtime.kv_quantizer import Fp8Quantizer
from tests.llm.tiny import save_tiny

TEXT = [(7 * i * i + 3 * i) % 90 + 4 for i in range(70)]
ROOM = {"num_blocks": 64, "prefix_cache": None, "max_model_len": 256}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(tiny):
    return LLM(tiny, **ROOM)


@pytest.fixture(scope="module")
def reference(llm):
    return Reader.of(llm).read(TEXT)


def test_a_reading_expects_what_the_engine_reports_of_a_prompt(llm, reference) -> None:
    params = SamplingParams(prompt_logprobs=0, max_tokens=1)
    (output,) = llm.generate([TEXT], params, use_tqdm=False)
    told = [
        entry[token].logprob
        for entry, token in zip(output.prompt_logprobs[1:], TEXT[1:], strict=True)
    ]
    rows = reference.log_probs(slice(0, len(TEXT) - 1))
    read = rows.gather(1, torch.tensor(TEXT[1:])[:, None])[:, 0]
    torch.testing.assert_close(read, torch.tensor(told), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_b125_a_quantized_engine_is_read_through_its_quantized_cache(tiny, reference, kind) -> None:
    """Something is lost, and little."""
    reader = Reader.of(LLM(tiny, kv_cache_dtype=kind, **ROOM))
    lost = compare(reference, reader.read(TEXT))
    assert reader.kv_dtype.itemsize == 1
    assert 1e-6 < lost.kl < 0.05


def test_b128_chunks_change_nothing_that_a_quantized_cache_gives(llm, reference) -> None:
    eight = replace(Reader.of(llm), kv_dtype=torch.int8)
    whole, *cut = (replace(eight, chunk=chunk).read(TEXT) for chunk in (70, 4, 13))
    for one in cut:
        assert one.hidden.isfinite().all()
        assert compare(whole, one).kl < 0.02 * compare(reference, whole).kl


@pytest.mark.parametrize(
    ("dtype", "rounding"),
    [(torch.int8, by_row(8)), (torch.float8_e4m3fn, by_quantizer(Fp8Quantizer()))],
    ids=["int8", "fp8"],
)
def test_rounding_on_the_way_in_is_what_the_quantized_cache_gives(llm, dtype, rounding) -> None:
    """So bits that the engine has not can be tried in this way. (A code may round otherwise.)"""
    reader = Reader.of(llm)
    real = replace(reader, kv_dtype=dtype).read(TEXT)
    tried = replace(reader, store=storing(rounding)).read(TEXT)
    assert compare(real, tried).kl < 1e-5


def test_fewer_bits_lose_more_and_a_part_less_than_all(llm, reference) -> None:
    reader = Reader.of(llm)

    def kl(rounding, **where) -> float:
        return compare(reference, replace(reader, store=storing(rounding, **where)).read(TEXT)).kl

    assert kl(by_row(8)) < kl(by_row(5)) < kl(by_row(3))
    assert 0 < kl(by_row(3), layers=[1]) < kl(by_row(3))
    assert 0 < kl(by_row(3), layers=[1], head=0) != kl(by_row(3), layers=[1], head=1)
    assert 0 < kl(by_row(3), values=False) != kl(by_row(3), keys=False)
    assert kl(by_row(5), layers=[]) < 1e-9
    assert kl(by_row(6)) < min(kl(by_tensor(6)), kl(by_floor(6)))


def test_a_row_of_zeros_stays_one() -> None:
    """B124."""
    for rounding in (by_row(8), by_tensor(8), by_floor(8)):
        assert rounding(torch.zeros(2, 2, 4)).eq(0).all()
    with pytest.raises(ValueError, match="bits=1"):
        by_row(1)


def test_a_reading_loses_nothing_beside_itself_and_sums_up_by_tokens(reference) -> None:
    alone = compare(reference, reference)
    assert alone.kl == 0
    assert alone.same_top == 1
    assert alone.perplexity == alone.reference_perplexity
    parts = compare(reference, reference.with_logits(), start=50)
    assert parts.tokens == 20
    both = Losses.of_all([alone, parts])
    assert both.tokens == alone.tokens + 20
    assert both.nll == pytest.approx((alone.nll * alone.tokens + parts.nll * 20) / both.tokens)


def test_perplexity_and_divergence_are_what_their_formulas_give(llm, reference) -> None:
    other = replace(Reader.of(llm), store=storing(by_row(3))).read(TEXT)
    p, q = (one.log_probs(slice(0, len(TEXT) - 1)).double() for one in (reference, other))
    lost = compare(reference, other)
    kl = torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean")
    assert lost.kl == pytest.approx(kl.item(), rel=1e-4)
    nll = torch.nn.functional.nll_loss(q, torch.tensor(TEXT[1:]))
    assert lost.perplexity == pytest.approx(nll.exp().item(), rel=1e-5)


def test_what_cannot_be_compared_or_read_is_refused(llm, reference) -> None:
    reader = Reader.of(llm)
    with pytest.raises(ValueError, match="different texts"):
        compare(reference, reader.read(TEXT[:30]))
    with pytest.raises(ValueError, match="nothing is foretold behind token 70 of 70"):
        compare(reference, reference, start=70)
    with pytest.raises(ValueError, match="a text of 0 tokens"):
        reader.read([])
    with pytest.raises(ValueError, match="no tokens"):
        Losses.of_all([])
