"""Drafts are accepted so that tokens are distributed as the model's own, and greedy ones equal."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import PADDING, accept, match
from minillm_serve.runtime.spec.conformance import draw_steps, find_fault, find_wrong_shares
from tests.spec.rules import WRONG, by_the_paper, right, variant
from tests.spec.steps import spoil, steps

DRAWS = 60_000
LEAST = 1e-4

#: Distributions of the model [3, V] and of a drafter [2, V]: alike, far apart, with tokens that
#: only one of them has (as top_k and top_p make them), and certain ones.
PAIRS = {
    "three tokens": (
        [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]],
        [[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]],
    ),
    "four tokens": (
        [[0.4, 0.4, 0.1, 0.1], [0.1, 0.5, 0.1, 0.3], [0.2, 0.1, 0.1, 0.6]],
        [[0.1, 0.1, 0.4, 0.4], [0.4, 0.2, 0.3, 0.1]],
    ),
    "filtered": (
        [[0.7, 0.3, 0, 0], [0, 0.4, 0.6, 0], [0.2, 0.2, 0, 0.6]],
        [[0.4, 0, 0.6, 0], [0.3, 0.3, 0.2, 0.2]],
    ),
    "nothing in common": (
        [[0.7, 0.3, 0, 0], [0, 0.4, 0.6, 0], [0, 0, 0, 1]],
        [[0, 0, 0.6, 0.4], [1, 0, 0, 0]],
    ),
    "certain drafts": (
        [[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]],
        [[0, 0, 1, 0], [1, 0, 0, 0]],
    ),
    "eight tokens": (
        torch.softmax(torch.randn(3, 8, generator=torch.Generator().manual_seed(1)), -1).tolist(),
        torch.softmax(torch.randn(2, 8, generator=torch.Generator().manual_seed(2)), -1).tolist(),
    ),
    "equal": (
        [[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.4, 0.1]],
        [[0.1, 0.6, 0.3], [0.2, 0.2, 0.6]],
    ),
}


def emitted(rule, p, q):
    """p-values of the first two tokens together, and of the third where all drafts were kept.

    A position that a step does not reach gets its token in the next step, from the model's row.
    """
    p, q = torch.tensor(p).float(), torch.tensor(q).float()
    *rest, _, draws = draw_steps(p, q, DRAWS, seed=0)
    got = rule(*rest, torch.full((DRAWS,), 2), draws)
    later = torch.rand(DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(99))
    first = got.token_ids[:, 0]
    second = torch.where(
        got.counts >= 1, got.token_ids[:, 1], invert(p[1].expand(DRAWS, -1), later)
    )
    third = got.token_ids[got.counts == 2, 2]
    vocab = p.shape[-1]
    pairs = torch.bincount(first * vocab + second, minlength=vocab**2)
    joint = p[0].double()[:, None] * p[1].double()
    return [
        p_value(pairs, joint.flatten()),
        p_value(torch.bincount(third, minlength=vocab), p[2]) if len(third) else 1.0,
    ]


@pytest.mark.parametrize(("p", "q"), PAIRS.values(), ids=PAIRS)
def test_tokens_are_distributed_as_the_model_s_own_whatever_q_b59_b62(p, q):
    assert min(emitted(accept, p, q)) > LEAST


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_the_same_test_tells_a_wrong_rule_b59_b62(rule):
    assert min(emitted(rule, *PAIRS["four tokens"])) < 1e-12


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_rows_are_distributed_as_the_model_s_own_too_b64(count):
    p, q = map(torch.tensor, PAIRS["three tokens"])
    got = accept(*draw_steps(p, q, DRAWS, seed=count))
    rows = torch.arange(DRAWS) % 3 == count
    assert got.counts[rows].max() == count
    assert p_value(torch.bincount(got.token_ids[rows, 0]), p[0]) > LEAST


@pytest.mark.parametrize(("p", "q"), PAIRS.values(), ids=PAIRS)
def test_drafts_are_kept_as_often_as_p_and_q_overlap(p, q):
    p, q = torch.tensor(p).float(), torch.tensor(q).float()
    *args, _, draws = draw_steps(p, q, DRAWS, seed=3)
    counts = accept(*args, torch.ones(DRAWS, dtype=torch.int64), draws).counts
    overlap = torch.minimum(p[0], q[0]).double().sum()
    assert p_value(torch.bincount(counts, minlength=2), torch.stack([1 - overlap, overlap])) > LEAST


def test_certain_drafts_are_accepted_alike_by_matching_what_was_chosen():
    p, q = (torch.tensor(rows).float() for rows in PAIRS["certain drafts"])
    *_, drafts, lengths, draws = draw_steps(p, q, DRAWS, seed=4)
    chosen = torch.stack([invert(p[i].expand(DRAWS, -1), draws[:, i, 1]) for i in range(3)], dim=1)
    matched = match(chosen, drafts, lengths)
    accepted = accept(p.expand(DRAWS, -1, -1), q.expand(DRAWS, -1, -1), drafts, lengths, draws)
    for got in (matched, accepted):
        rows = lengths == 2
        outcomes = torch.zeros(
            2 * 4, dtype=torch.float64
        )  # kept none or not; the first other token
        outcomes[:4] = p[0]
        outcomes[2], outcomes[4:] = 0, p[0, 2].double() * p[1]
        first, second = got.token_ids[rows, 0], got.token_ids[rows, 1]
        counts = torch.bincount(torch.where(first == 2, 4 + second, first), minlength=8)
        assert p_value(counts, outcomes) > LEAST


@settings(max_examples=300, deadline=None)
@given(steps())
def test_any_step_is_accepted_as_the_paper_has_it_and_padded_b63_b64(step):
    p, q, drafts, lengths, draws = step
    got = accept(*spoil(p, q, drafts, lengths), draws)
    for s, count in enumerate(lengths.tolist()):
        tokens, kept = by_the_paper(
            p[s].tolist(), q[s].tolist(), drafts[s, :count].tolist(), draws[s].tolist()
        )
        padding = [PADDING] * (drafts.shape[1] + 1 - len(tokens))
        assert got.token_ids[s].tolist() == tokens + padding
        assert got.counts[s] == kept
        # What the comparison must imply, whoever wrote it:
        assert 0 <= kept <= count
        assert tokens[:kept] == drafts[s, :kept].tolist()
        assert all(p[s, i, token] > 0 for i, token in enumerate(tokens))


@settings(max_examples=150, deadline=None)
@given(steps(), st.data())
def test_greedy_rows_are_accepted_by_matching_whatever_q_and_the_draws_b61_b63(step, data):
    p, q, drafts, lengths, draws = step
    greedy = torch.tensor([data.draw(st.booleans()) for _ in lengths])
    chosen = p.argmax(dim=-1)
    certain = torch.nn.functional.one_hot(chosen, p.shape[-1]).float()
    p = torch.where(greedy[:, None, None], certain, p)
    got = accept(*spoil(p, q, drafts, lengths), draws)
    matched = match(chosen, drafts, lengths)
    assert torch.equal(got.token_ids[greedy], matched.token_ids[greedy])
    assert torch.equal(got.counts[greedy], matched.counts[greedy])


def test_a_draft_is_always_kept_where_the_drafter_is_the_model():
    rows = torch.softmax(torch.randn(2000, 3, 50, generator=torch.Generator().manual_seed(0)), -1)
    drafts = torch.randint(50, (2000, 2), generator=torch.Generator().manual_seed(1))
    draws = torch.full((2000, 3, 2), 1 - 2**-53, dtype=torch.float64)
    got = accept(rows, rows[:, :2], drafts, torch.full((2000,), 2), draws)
    assert got.counts.tolist() == [2] * 2000


def test_a_row_does_not_depend_on_its_neighbours_b89_b91():
    p, q = map(torch.tensor, PAIRS["eight tokens"])
    step = draw_steps(p, q, 30, seed=5)
    together = accept(*step)
    alone = [accept(*(tensor[s : s + 1] for tensor in step)) for s in range(30)]
    assert torch.equal(torch.cat([one.token_ids for one in alone]), together.token_ids)


def test_matching_keeps_what_was_chosen_up_to_the_first_that_differs_b56():
    chosen = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7]])
    drafts = torch.tensor([[5, 6], [5, 9], [9, 6], [5, 6], [99, -1]])
    got = match(chosen, drafts, torch.tensor([2, 2, 2, 1, 0]))
    assert got.token_ids.tolist() == [[5, 6, 7], [5, 6, -1], [5, -1, -1], [5, 6, -1], [5, -1, -1]]
    assert got.counts.tolist() == [2, 1, 0, 1, 0]


def test_what_does_not_fit_is_refused_by_name():
    p, q = torch.full((2, 3, 4), 0.25), torch.full((2, 2, 4), 0.25)
    drafts, lengths = torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    draws = torch.zeros(2, 3, 2, dtype=torch.float64)
    assert accept(p, q, drafts, lengths, draws).token_ids.tolist() == [[0, -1, -1]] * 2
    for wrong, message in [
        ((p[0], q, drafts, lengths, draws), r"^p has shape \[3, 4\], must be \[S, K\+1, V\]"),
        ((p, p, drafts, lengths, draws), r"^q has shape \[2, 3, 4\] .*, must have \[2, 2, 4\]"),
        ((p.half(), q, drafts, lengths, draws), r"^p .*float16, must have .*float32"),
        ((p, q, drafts[:, :1], lengths, draws), r"^drafts has shape \[2, 1\]"),
        ((p, q, drafts, lengths.int(), draws), r"^lengths .*torch.int32"),
        ((p, q, drafts, lengths, draws.float()), r"^draws .*torch.float32"),
    ]:
        with pytest.raises(ValueError, match=message):
            accept(*wrong)


def test_ours_passes_at_the_door_of_the_slot_and_no_wrong_rule_does():
    assert find_fault(accept) is None
    assert find_fault(variant(right)) is None
    for name, rule in WRONG.items():
        assert find_fault(rule), name
        assert find_wrong_shares(rule), name
