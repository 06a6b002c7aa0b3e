"""Somebody's acceptance rule in the engine: checked at the door, watched, named in errors."""

import pytest
import torch

from minillm_serve import LLM, SamplingParams
from minillm_serve.core import PartError
from minillm_serve.core.invariants import check_idle
from minillm_serve.parts import Part
from minillm_serve.parts.accept import fit_accept
from minillm_serve.runtime.spec.accept import Accepted, accept
from tests.llm.parts_right import my_accept
from tests.llm.tiny import save_tiny
from tests.spec.rules import WRONG, right, variant

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "adaptive": False}
PROMPTS = ["Hello", "ab" * 12, "to be or not to be, to be or not to be", "q", "w" * 17]


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def build(tiny_dir, **options):
    options.setdefault("speculative_config", NGRAM)
    return LLM(tiny_dir, kv_cache_memory=2**20, dtype="float64", debug_invariants=True, **options)


def serve(llm, **params):
    asked = SamplingParams(max_tokens=30, ignore_eos=True, **params)
    return [o.outputs[0].token_ids for o in llm.generate(PROMPTS, asked, use_tqdm=False)]


def returns_lists(p, q, drafts, lengths, draws):
    return [one.tolist() for one in accept(p, q, drafts, lengths, draws)]


def returns_tokens_alone(p, q, drafts, lengths, draws):
    return accept(p, q, drafts, lengths, draws).token_ids


def returns_short_rows(p, q, drafts, lengths, draws):
    token_ids, counts = accept(p, q, drafts, lengths, draws)
    return token_ids[:, :-1], counts


def returns_ints(p, q, drafts, lengths, draws):
    token_ids, counts = accept(p, q, drafts, lengths, draws)
    return token_ids, counts.int()


def looks_beyond_the_drafts(p, q, drafts, lengths, draws):
    return accept(p, q, drafts, torch.full_like(lengths, drafts.shape[1]), draws)


def draws_for_itself(p, q, drafts, lengths, draws):
    return accept(p, q, drafts, lengths, torch.rand_like(draws))


def leaves_garbage_behind(p, q, drafts, lengths, draws):
    token_ids, counts = accept(p, q, drafts, lengths, draws)
    return Accepted(token_ids.clamp(min=0), counts)


def takes_other_names(p, q, guesses, lengths, draws):
    return accept(p, q, guesses, lengths, draws)


def is_a_stub(p, q, drafts, lengths, draws):
    raise NotImplementedError("implement accept")


REFUSED = [
    (is_a_stub, "raised NotImplementedError: implement accept"),
    (takes_other_names, r"has accept\(p, q, guesses, lengths, draws\), expected accept\(p, q, dra"),
    (returns_lists, r"returned a list, expected Accepted\(token_ids, counts\), two tensors"),
    (returns_tokens_alone, r"returned a Tensor, expected Accepted"),
    (
        returns_short_rows,
        r"returned token_ids of shape \[3, 2\] and torch.int64, expected \[3, 3\]",
    ),
    (
        returns_ints,
        r"returned counts of shape \[3\] and torch.int32, expected \[3\] and torch.int64",
    ),
    (looks_beyond_the_drafts, "raised RuntimeError: index -1 is out of bounds"),
    (draws_for_itself, "in the case 'a draft half as likely|other tokens for the same draws"),
    (leaves_garbage_behind, r"gave the tokens \[2, 0, 0\] .*expected \[2, -1, -1\] .*'no drafts'"),
    (
        WRONG["picks again from p"],
        "the case 'a draft half as likely as the drafter thought, draw a",
    ),
    (WRONG["the last token from the row before"], "drafts from the model's own distribution"),
    (WRONG["takes another q than was drawn from"], r"in shares of .*: what follows 0 kept drafts"),
    (7, "is of type int: give a function"),
]


@pytest.mark.parametrize(("rule", "message"), REFUSED)
def test_a_wrong_rule_is_refused_at_the_door_with_the_case_that_tells(rule, message):
    with pytest.raises(PartError, match=rf"^your accept \(.*\) .*{message}"):
        fit_accept(Part("accept", rule), accept)


@pytest.mark.parametrize("rule", [my_accept, accept, variant(right)])
def test_a_right_rule_passes_at_the_door(rule):
    fit_accept(Part("accept", rule), accept)


def test_without_a_part_the_rule_is_ours():
    assert fit_accept(None, accept) is accept


@pytest.mark.parametrize("rule", [my_accept, accept])
def test_a_right_rule_gives_greedy_requests_the_tokens_that_they_get_without_drafts(tiny_dir, rule):
    llm = build(tiny_dir, parts={"accept": rule})
    assert serve(llm, temperature=0) == serve(
        build(tiny_dir, speculative_config=None), temperature=0
    )
    assert 0 < llm.spec_stats.num_accepted_tokens < llm.spec_stats.num_draft_tokens


def test_a_right_rule_decides_as_ours_does_on_drawn_tokens_too(tiny_dir):
    ours, theirs = (build(tiny_dir, parts={"accept": rule}) for rule in (accept, my_accept))
    assert serve(theirs, temperature=0.3, seed=5) == serve(ours, temperature=0.3, seed=5)
    assert theirs.spec_stats == ours.spec_stats
    assert theirs.spec_stats.num_accepted_tokens > 0


def test_a_rule_without_drafts_to_decide_on_is_refused(tiny_dir):
    with pytest.raises(ValueError, match="your accept part decides on drafts, and nobody makes"):
        build(tiny_dir, parts={"accept": my_accept}, speculative_config=None)


class Armed:
    """A right rule whose answers are changed once it is armed."""

    def __init__(self, change):
        self.change, self.armed = change, False

    def rule(self, p, q, drafts, lengths, draws):
        got = accept(p, q, drafts, lengths, draws)
        return self.change(p, drafts, lengths, got) if self.armed else got


def fails(p, drafts, lengths, got):
    raise IndexError("boom")


def keeps_too_many(p, drafts, lengths, got):
    return got._replace(counts=lengths + 1)


def keeps_other_tokens(p, drafts, lengths, got):
    others = torch.cat([drafts, drafts[:, :1]], dim=1) + 1
    return Accepted(others % p.shape[2], lengths)


def picks_an_unknown_id(p, drafts, lengths, got):
    return Accepted(got.token_ids.masked_fill(got.token_ids >= 0, p.shape[2]), got.counts * 0)


def picks_the_unlikeliest(p, drafts, lengths, got):
    return Accepted(p.argmin(dim=2), got.counts * 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (fails, "raised IndexError: boom"),
        (keeps_too_many, r"count \d for sequence 0, but the count must be from 0 to \d, how many"),
        (keeps_other_tokens, r"but token \d is kept, and the draft is \d+"),
        (picks_an_unknown_id, r"but token 0 must be an id from 0 to \d+"),
        (picks_the_unlikeliest, r"but token 0 has the probability 0 by p"),
    ],
)
def test_a_rule_that_goes_wrong_later_fails_its_requests_and_the_engine_goes_on(
    tiny_dir, change, message
):
    armed = Armed(change)
    llm = build(tiny_dir, parts={"accept": armed.rule})
    before = serve(llm, temperature=0)
    armed.armed = True
    with pytest.raises(PartError, match=rf"^your accept \(.*Armed.rule\) .*{message}"):
        serve(llm, temperature=0)
    check_idle(llm.engine.scheduler)
    armed.armed = False
    assert serve(llm, temperature=0) == before
