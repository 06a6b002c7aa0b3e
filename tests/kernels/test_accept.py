"""The acceptance kernel keeps the reference's drafts and picks its tokens."""

import math

import pytest
import torch
from hypothesis import given, settings

from minillm_serve.kernels import accept as kernels
from minillm_serve.runtime.spec.accept import Accepted, accept, accept_on
from minillm_serve.runtime.spec.conformance import CASES, find_fault, stack_cases
from tests.kernels.interpret import DEVICE
from tests.spec.steps import spoil, steps


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """Short rows have many parts; rows of real vocabularies are tested by the slow test."""
    monkeypatch.setattr(kernels, "PART", 64)
    monkeypatch.setattr(kernels, "THREADS", 32)


def by_kernel(*step):
    return Accepted(*(one.cpu() for one in kernels.accept(*(one.to(DEVICE) for one in step))))


def assert_equal(got, want):
    assert got.counts.tolist() == want.counts.tolist()
    assert got.token_ids.tolist() == want.token_ids.tolist()


def among_nan(rows, margin):
    """The same [S, N, V] inside of a larger tensor of NaN: beyond a row nothing may be read."""
    size, count, vocab = rows.shape
    room = torch.full((size, count + 2, vocab + margin), math.nan)
    room[:, 1 : count + 1, 8 : vocab + 8] = rows
    return room.to(DEVICE)[:, 1 : count + 1, 8 : vocab + 8]


def step_of(vocab, *, size=8, num_drafts=3, seed=0):
    """A step in which every third sequence is greedy, and every fourth has certain drafts."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(size, num_drafts + 1, vocab, generator=generator) * 3
    guess = logits[:, :num_drafts] + torch.randn(size, num_drafts, vocab, generator=generator)
    p, q = torch.softmax(logits, -1), torch.softmax(guess, -1)
    p[::3] = torch.nn.functional.one_hot(p[::3].argmax(-1), vocab).float()
    q[::4] = torch.nn.functional.one_hot(q[::4].argmax(-1), vocab).float()
    drafts = torch.multinomial(q.flatten(0, 1), 1, generator=generator).view(size, num_drafts)
    lengths = torch.randint(num_drafts + 1, (size,), generator=generator)
    draws = torch.rand(size, num_drafts + 1, 2, dtype=torch.float64, generator=generator)
    return *spoil(p, q, drafts, lengths), draws


@settings(max_examples=40, deadline=None)
@given(steps())
def test_any_step_gives_the_reference_s_tokens_b63_b64(step):
    *step, draws = step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "PART", 2)  # so that draws fall on borders between parts, too
        assert_equal(by_kernel(*spoil(*step), draws), accept(*step, draws))


@pytest.mark.parametrize("vocab", [1, 2, 5, 63, 64, 65, 300])
def test_drawn_steps_give_the_reference_s_tokens(vocab):
    p, q, *rest = step = step_of(vocab, seed=vocab)
    assert_equal(by_kernel(among_nan(p, 40), among_nan(q, 24), *rest), accept(*step))


def test_every_case_of_the_door_comes_out_right():
    step = stack_cases(CASES)
    assert_equal(by_kernel(*step), accept(*step))


@pytest.mark.parametrize("num_drafts", [0, 1, 16, 31, 40])
def test_any_number_of_drafts_is_tested(num_drafts):
    step = step_of(20, size=4, num_drafts=num_drafts, seed=num_drafts)
    assert_equal(by_kernel(*step), accept(*step))


def test_a_sequence_depends_neither_on_its_neighbours_nor_on_the_tiling_b89_b91(monkeypatch):
    step = step_of(300, size=6, seed=1)
    together = by_kernel(*step)
    alone = [by_kernel(*(one[s : s + 1] for one in step)) for s in range(6)]
    assert_equal(Accepted(*map(torch.cat, zip(*alone, strict=True))), together)
    monkeypatch.setattr(kernels, "PART", 512)
    assert_equal(by_kernel(*step), together)


def test_scratch_memory_is_written_before_it_is_read():
    step = step_of(200, size=4, seed=2)
    want = by_kernel(*step)
    torch.use_deterministic_algorithms(True)  # fills what torch.empty gives with the largest int
    try:
        assert_equal(by_kernel(*step), want)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # of NaN, interpreted
def test_rows_that_are_no_distribution_still_give_a_token_of_the_vocabulary_b68():
    p, q, drafts, lengths, draws = step_of(100, size=3, seed=3)
    p[0, 0], p[1, 0] = 0, math.nan
    got = by_kernel(p, q, drafts, lengths, draws)
    assert got.token_ids[:, 0].min() >= 0
    assert got.token_ids[:, 0].max() < 100
    assert_equal(
        Accepted(*(one[2:] for one in got)),
        accept(*(one[2:] for one in (p, q, drafts, lengths, draws))),
    )


def test_what_does_not_fit_is_refused_by_name():
    p, q, drafts, lengths, draws = (one.to(DEVICE) for one in step_of(8, size=2))
    for wrong, message in [
        ((p[0], q, drafts, lengths, draws), r"p has shape \[4, 8\], must have \[any, any, any\]"),
        ((p[:, :, :0], q, drafts, lengths, draws), "there is no token to pick"),
        ((p, p, drafts, lengths, draws), r"q has shape \[2, 4, 8\], must have \[2, 3, 8\]"),
        ((p.double(), q, drafts, lengths, draws), r"p is torch\.float64, must be torch\.float32"),
        ((p, q, drafts, lengths.int(), draws), r"lengths is torch\.int32"),
        ((p, q, drafts, lengths, draws.float()), r"draws is torch\.float32"),
        ((p.mT.contiguous().mT, q, drafts, lengths, draws), r"p has strides \[32, 1, 4\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            kernels.accept(*wrong)
    token_ids, counts = kernels.accept(*(one[:0] for one in (p, q, drafts, lengths, draws)))
    assert (token_ids.shape, counts.shape) == ((0, 4), (0,))


def test_ours_on_a_cpu_is_the_reference():
    assert accept_on(torch.device("cpu")) is accept


@pytest.mark.skipif(DEVICE == "cpu", reason="thousands of programs")
def test_the_kernel_passes_at_the_door_of_the_slot():
    rule = accept_on(torch.device(DEVICE))
    assert (
        find_fault(
            lambda *step: Accepted(*(one.cpu() for one in rule(*(one.to(DEVICE) for one in step))))
        )
        is None
    )


@pytest.mark.slow
@pytest.mark.parametrize("vocab", [49152, 151936])
def test_real_vocabularies_give_the_reference_s_tokens(monkeypatch, vocab):
    monkeypatch.undo()
    step = step_of(vocab, size=12, seed=vocab)
    assert_equal(by_kernel(*step), accept(*step))
