"""The sampling kernels draw the reference's tokens and keep what a sort would keep."""

import math
import random

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from minillm_serve.kernels.random_numbers import uniform, wrap_seed
from minillm_serve.kernels.sample import NO_TOKEN, argmax, sample
from minillm_serve.kernels.sample_filters import find_border

from minillm_serve.core import SamplingParams
from minillm_serve.kernels import sample as kernels
from minillm_serve.runtime.sampling import randomness
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.sampler import choose_by_torch
from tests.kernels.interpret import DEVICE, poisoned

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.9, -3.0, 1.9, 0.0], device=DEVICE)
#: Interpreted, every row is a program that runs for some 10 ms.
DRAWS = 20_000 if DEVICE == "cuda" else 200


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """Short rows have many parts; rows of real vocabularies are tested by the slow tests."""
    monkeypatch.setattr(kernels, "PART", 64)
    monkeypatch.setattr(kernels, "THREADS", 32)


def choice(seed=0, position=3, **params):
    return Choice(SamplingParams(**params), seed, position, 0, frozenset())


def draw(logits, choices):
    """The kernel's tokens, written over garbage."""

    def column(values, dtype):
        return torch.tensor(list(values), dtype=dtype, device=DEVICE)

    params = [c.params for c in choices]
    out = torch.full((len(logits),), -77, device=DEVICE)
    got = sample(
        logits,
        column((0.0 if p.greedy else p.temperature for p in params), torch.float32),
        column((min(p.top_k, 2**31 - 1) for p in params), torch.int32),
        column((p.top_p for p in params), torch.float64),
        column((p.min_p for p in params), torch.float64),
        column((wrap_seed(c.seed) for c in choices), torch.int64),
        column((c.position for c in choices), torch.int64),
        out=out,
    )
    assert got is out
    return out.tolist()


def reference(logits, choices):
    tokens, healthy = choose_by_torch(logits, choices)
    return torch.where(healthy, tokens, NO_TOKEN).tolist()


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def any_choice(chance):
    return choice(
        seed=chance.choice([0, 7, -3, chance.getrandbits(80) - 2**79]),
        position=chance.randint(0, 100_000),
        temperature=chance.choice([0.0, 0.3, 1.0, 1.7]),
        top_k=chance.choice([0, -1, 1, 2, 7, 50, 10**9]),
        top_p=chance.choice([1.0, 1.0, 0.0, 0.1, 0.5, 0.9, 0.999]),
        min_p=chance.choice([0.0, 0.0, 0.03, 1.0]),
    )


@pytest.mark.parametrize("vocab", [1, 2, 5, 63, 64, 65, 300])
@pytest.mark.parametrize("kind", ["plain", "ties", "bf16"])
def test_the_same_seed_and_position_draw_the_reference_s_token(vocab, kind):
    chance = random.Random(vocab)
    logits = normal(8, vocab, seed=vocab) * 3
    logits = {"plain": logits, "ties": logits.round(), "bf16": logits.bfloat16()}[kind]
    choices = [any_choice(chance) for _ in logits]
    assert draw(logits, choices) == reference(logits, choices)


@triton.jit
def uniform_kernel(seeds_ptr, positions_ptr, out_ptr, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(out_ptr + i, uniform(tl.load(seeds_ptr + i), tl.load(positions_ptr + i)))


def test_random_numbers_are_the_reference_s_bit_for_bit_b37_b92():
    chance = random.Random(0)
    seeds = [
        0,
        1,
        -1,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
        randomness.stream(7, randomness.DRAFT),
        randomness.stream(7, randomness.TEST),
        *(chance.getrandbits(90) for _ in range(247)),
    ]
    positions = [chance.choice([0, 1, 2**31, chance.getrandbits(40)]) for _ in seeds]
    out = poisoned(256, dtype=torch.float64)
    uniform_kernel[(1,)](
        torch.tensor([wrap_seed(seed) for seed in seeds], device=DEVICE),
        torch.tensor(positions, device=DEVICE),
        out,
        block=256,
        enable_fp_fusion=True,
    )
    want = [randomness.uniform(*both) for both in zip(seeds, positions, strict=True)]
    assert out.tolist() == want


@triton.jit
def border_kernel(
    weights_ptr, least_ptr, room_ptr, mass_ptr, top_k_ptr, top_p_ptr, min_p_ptr, width,
    v: tl.constexpr, unit: tl.constexpr, part: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    least, room = find_border(
        weights_ptr, width, tl.load(mass_ptr), tl.load(top_k_ptr + row),
        tl.load(top_p_ptr + row), tl.load(min_p_ptr + row), v, unit, part,
    )  # fmt: skip
    tl.store(least_ptr + row, least)
    tl.store(room_ptr + row, room)


def kept(weights, params, part=16):
    """What the kernel keeps of one row of weights, for each of some parameters."""
    vocab, unit = len(weights), 2.0**40
    padded = torch.zeros(-(-vocab // part) * part, device=DEVICE)
    padded[:vocab] = torch.tensor(weights)
    least = poisoned(len(params))
    room = torch.full((len(params),), -77, device=DEVICE)
    border_kernel[(len(params),)](
        padded, least, room, (padded * unit).long().sum(),
        torch.tensor([p.top_k for p in params], dtype=torch.int32, device=DEVICE),
        torch.tensor([p.top_p for p in params], dtype=torch.float64, device=DEVICE),
        torch.tensor([p.min_p for p in params], dtype=torch.float64, device=DEVICE),
        len(padded), v=vocab, unit=unit, part=part, enable_fp_fusion=True,
    )  # fmt: skip
    sets = []
    for border, count in zip(least.tolist(), room.tolist(), strict=True):
        ties = [i for i in range(vocab) if weights[i] == border]
        sets.append({i for i in range(vocab) if weights[i] > border} | set(ties[: max(count, 0)]))
    return sets


def sorted_and_kept(weights, params):
    """The same by the definitions, in exact arithmetic: of tokens that could be drawn."""
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    left = order[: params.top_k] if params.top_k > 0 else order
    total, reached, chosen = sum(weights[i] for i in left), 0.0, []
    for i in left:
        if chosen and params.top_p < 1 and reached >= params.top_p * total:
            break
        chosen.append(i)
        reached += weights[i]
    return {i for i in chosen if weights[i] >= params.min_p} | {order[0]}


# Sixteenths add up exactly, so that the borders of top_p are really hit.
sixteenths = st.lists(st.integers(0, 16), min_size=1, max_size=40)
filters = st.builds(
    SamplingParams,
    top_k=st.sampled_from([0, -1, 1, 2, 3, 5, 16, 1000]),
    top_p=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 0.9375, 1.0]),
    min_p=st.sampled_from([0.0, 1e-300, 0.25, 0.25 + 1e-12, 0.3, 0.5, 1.0]),
)


@example([4, 8], [SamplingParams(min_p=0.25 + 1e-12)])  # above 0.25 until it is made a float32
@settings(max_examples=60, deadline=None)
@given(sixteenths, st.lists(filters, min_size=1, max_size=4))
def test_any_filters_keep_what_a_sort_would_keep_ties_and_all(row, params):
    weights = [value / 16 for value in [*row, 16]]  # the likeliest weighs 1
    possible = {i for i, weight in enumerate(weights) if weight > 0}
    got = [found & possible for found in kept(weights, params)]
    assert got == [sorted_and_kept(weights, p) & possible for p in params]


def test_weights_that_are_neighbours_as_floats_are_told_apart():
    weights = [1 - step / 2**24 for step in (3, 1, 0, 2, 4, 2)]
    params = [SamplingParams(top_k=k) for k in range(1, 7)]
    assert kept(weights, params) == [sorted_and_kept(weights, p) for p in params]


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_filters_of_many_tokens_keep_what_a_sort_would_keep(spread):
    row = torch.randn(2000, generator=torch.Generator().manual_seed(0)) * spread
    weights = torch.exp(row - row.max()).tolist()
    params = [
        SamplingParams(top_k=600, top_p=0.5),
        SamplingParams(top_k=1999),
        SamplingParams(top_p=0.9),
        SamplingParams(top_k=50, top_p=0.95, min_p=0.02),
        SamplingParams(min_p=1e-6),
    ]
    possible = {i for i, weight in enumerate(weights) if weight > 2**-40}
    got = [found & possible for found in kept(weights, params, part=256)]
    assert got == [sorted_and_kept(weights, p) & possible for p in params]


def assert_follows(tokens, probs):
    """Chi-square at the level of one false alarm in 100,000; impossible tokens never appear."""
    counts = torch.bincount(torch.tensor(tokens), minlength=len(probs)).double()
    possible = probs > 0
    assert counts[~possible].sum() == 0
    expected = probs[possible] * len(tokens)
    statistic = ((counts[possible] - expected) ** 2 / expected).sum().item()
    freedom = int(possible.sum()) - 1
    # Wilson and Hilferty's cube-root approximation of the quantile; z = 4.26.
    limit = freedom * (1 - 2 / (9 * freedom) + 4.26 * math.sqrt(2 / (9 * freedom))) ** 3
    assert statistic < limit


@pytest.mark.parametrize(
    ("params", "shares"),
    [({"temperature": 0.5}, [0.1, 0.2, 0.3, 0.4]), ({"top_k": 2}, [0, 0, 1, 1])],
)
def test_draws_follow_what_is_kept_of_the_softmax(params, shares):
    probs = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    rows = probs.log().float().to(DEVICE).expand(DRAWS, -1)
    tokens = draw(rows, [choice(seed=seed, **params) for seed in range(DRAWS)])
    weights = probs * torch.tensor(shares)
    assert_follows(tokens, weights / weights.sum())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 300])
def test_argmax_takes_the_lowest_id_of_equals(vocab, dtype):
    logits = (normal(6, vocab, seed=vocab) * 2).round().to(dtype)
    room = poisoned(6, vocab + 40, dtype=dtype)  # what lies beyond a row is not looked at
    room[:, 8 : vocab + 8] = logits
    out = torch.full((6,), -77, device=DEVICE)
    assert argmax(room[:, 8 : vocab + 8], out=out) is out
    assert out.tolist() == [row.index(max(row)) for row in logits.tolist()]


def test_ties_in_earlier_parts_leave_no_room_for_later_ones():
    logits = torch.zeros(128, device=DEVICE)
    logits[127] = 3.0  # the only token of the second part that is kept
    rows, choices = logits.expand(24, -1), [choice(seed=seed, top_k=50) for seed in range(24)]
    tokens = draw(rows, choices)
    assert tokens == reference(rows, choices)
    assert {token for token in tokens if token > 48} == {127}


def test_a_row_depends_neither_on_its_neighbours_nor_on_the_tiling_b89_b91(monkeypatch):
    chance = random.Random(1)
    logits, choices = normal(6, 300) * 3, [any_choice(chance) for _ in range(6)]
    together = draw(logits, choices)
    assert draw(logits.flip(0), choices[::-1]) == together[::-1]
    assert [draw(logits[i : i + 1], choices[i : i + 1])[0] for i in range(6)] == together
    monkeypatch.setattr(kernels, "PART", 512)
    assert draw(logits, choices) == together


def test_scratch_memory_is_written_before_it_is_read():
    chance = random.Random(2)
    logits, choices = normal(4, 200) * 3, [any_choice(chance) for _ in range(4)]
    want = draw(logits, choices)
    torch.use_deterministic_algorithms(True)  # fills what torch.empty gives with NaN
    try:
        assert draw(logits, choices) == want
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_gets_no_token_and_others_are_served_b68(bad):
    logits = normal(3, 100)
    logits[1, 77] = bad
    choices = [choice(temperature=0.0), choice(seed=1), choice(seed=2, top_p=0.5)]
    tokens = draw(logits, choices)
    assert tokens[1] == NO_TOKEN
    assert tokens[::2] == draw(logits[::2], choices[::2])
    assert argmax(logits).tolist()[1] == NO_TOKEN
    assert argmax(logits).tolist()[::2] == logits[::2].argmax(-1).tolist()


def test_a_row_without_any_possible_token_gets_none_b88():
    logits = torch.full((2, 70), -math.inf, device=DEVICE)
    logits[1, 69] = -5.0
    assert draw(logits, [choice(), choice()]) == [NO_TOKEN, 69]
    assert argmax(logits).tolist() == [NO_TOKEN, 69]


def test_an_excluded_token_is_never_drawn_b82():
    logits = LOGITS.repeat(30, 1)
    logits[:, 1] = -math.inf
    assert 1 not in draw(logits, [choice(seed=seed, top_p=0.99) for seed in range(30)])


@pytest.mark.parametrize("temperature", [1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tiny_temperature_equals_greedy_b81(temperature, dtype):
    logits = (LOGITS[None] * 100).to(dtype)
    assert draw(logits, [choice(temperature=temperature)]) == [1]


@pytest.mark.parametrize("top_p", [0.0, 1e-9, 1e-3])
def test_the_likeliest_is_always_kept_b84(top_p):
    assert set(draw(LOGITS.expand(9, -1), [choice(seed=s, top_p=top_p) for s in range(9)])) == {1}


@pytest.mark.parametrize("top_k", [-1, 8, 9, 10**9])
def test_top_k_beyond_the_vocabulary_keeps_all_b83(top_k):
    rows = LOGITS.expand(9, -1)
    want = draw(rows, [choice(seed=seed) for seed in range(9)])
    assert draw(rows, [choice(seed=seed, top_k=top_k) for seed in range(9)]) == want


def test_what_does_not_fit_is_refused_by_name():
    logits, one = LOGITS[None], torch.ones(1, device=DEVICE)
    rows = [one, one.int(), one.double(), one.double(), one.long(), one.long()]
    with pytest.raises(ValueError, match=r"top_k has shape \[2\], must have \[1\]"):
        sample(logits, one, one.int().expand(2), *rows[2:])
    with pytest.raises(ValueError, match=r"top_p is torch\.float32, must be torch\.float64"):
        sample(logits, one, one.int(), one, *rows[3:])
    with pytest.raises(ValueError, match=r"there is no token to choose"):
        argmax(logits[:, :0])
    with pytest.raises(ValueError, match=r"logits is torch\.float64"):
        argmax(logits.double())
    with pytest.raises(ValueError, match=r"logits has strides \[1, 8\]"):
        argmax(torch.zeros(3, 8, device=DEVICE).t())
    assert argmax(logits[:0]).shape == (0,)
    assert sample(logits[:0], *(row[:0] for row in rows)).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [49152, 151936])
def test_real_vocabularies_draw_the_reference_s_token(monkeypatch, vocab, dtype):
    monkeypatch.undo()
    chance = random.Random(vocab)
    logits = (normal(12, vocab) * 4).to(dtype)
    choices = [any_choice(chance) for _ in logits]
    assert draw(logits, choices) == reference(logits, choices)
    assert argmax(logits).tolist() == logits.argmax(-1).tolist()
