"""Masks of grammars: a slow one is left behind, and what they do to logits."""

import math
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from minillm_serve.core import (
    Request,
    RequestRefused,
    SamplingParams,
    Sequence,
    StructuredOutputsParams,
)
from minillm_serve.runtime.structured import given_up, grammar
from minillm_serve.runtime.structured.constrain import constrain
from minillm_serve.runtime.structured.given_up import GivenUp
from minillm_serve.runtime.structured.grammar import Grammar, GrammarCompiler, pack_ids
from minillm_serve.runtime.structured.matchers import DEAD_END, TOO_SLOW, Guided, Matchers
from tests.llm.tiny import tokenizer
from tests.models.tiny import VOCAB
from tests.server.running import eventually

A, B, EOS = (*tokenizer().convert_tokens_to_ids(["a", "b"]), 2)


@pytest.fixture(scope="module")
def compiler():
    return GrammarCompiler(tokenizer(), VOCAB, {EOS})


def shape(regex):
    return StructuredOutputsParams(regex=regex)


def sequence_of(asked, grammar, ids=()):
    """A sequence with so much output."""
    params = SamplingParams(structured_outputs=asked)
    request = Request(request_id="r", prompt_token_ids=(1,), params=params, grammar=grammar)
    sequence = Sequence(request)
    sequence.token_ids.extend(ids)
    return sequence


def following(compiler, regex="a*b", ids=()):
    return sequence_of(shape(regex), compiler.compile(shape(regex)), ids)


def guided(sequence, row=0, has_pending=False):
    return Guided(row, sequence, tuple(sequence.output_token_ids), has_pending)


def ids_of(mask):
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def test_a_mask_is_a_matter_of_the_tokens_alone(compiler):
    """Whether they came one by one, all at once (after a fault, say), or the last is pending."""
    matchers, one = Matchers(), following(compiler)
    for token, allowed in ((A, [A, B]), (A, [A, B]), (B, [EOS])):
        one.token_ids.append(token)
        (mask,) = matchers.masks([guided(one)], [token])
        assert ids_of(mask) == sorted(allowed)
    (again,) = matchers.masks([guided(one)], [B])
    (anew,) = Matchers().masks([guided(following(compiler, ids=[A, A, B]))], [B])
    pending = following(compiler, ids=[A, A])
    (late,) = Matchers().masks([guided(pending, has_pending=True)], [B])
    assert ids_of(again) == ids_of(anew) == ids_of(late) == [EOS]


def test_a_choice_after_the_end_has_no_mask_and_one_after_nonsense_has_none_to_make(compiler):
    ended = following(compiler, ids=[B])
    assert Matchers().masks([guided(ended, has_pending=True)], [EOS]) == [None]
    assert Matchers().masks([guided(ended, has_pending=True)], [A]) == [None]  # it was a fault
    assert Matchers().masks([guided(following(compiler, ids=[B, A]))], [A]) == [DEAD_END]


def test_a_matcher_lives_as_long_as_its_sequence(compiler):
    matchers, sequence = Matchers(), following(compiler)
    matchers.masks([guided(sequence)], [1])
    assert len(matchers._followed) == 1
    del sequence
    assert len(matchers._followed) == 0


class Stuck:
    """In the place of a grammar whose next mask takes for ever: until the test lets it go."""

    def __init__(self, go, tried):
        self.go, self.tried = go, tried

    def is_terminated(self):
        return False

    def fill_next_token_bitmask(self, bits):
        self.tried.append(self)
        self.go.wait()


class StuckGrammar(Grammar):
    def __init__(self, go, shape, given_up):
        super().__init__(None, pack_ids([A], VOCAB), shape, given_up)
        self.go, self.tried = go, []

    def matcher(self):
        return Stuck(self.go, self.tried)


def stuck(go, given_up, regex="a"):
    """A sequence whose next mask takes for ever."""
    return sequence_of(shape(regex), StuckGrammar(go, shape(regex), given_up))


def test_whoever_takes_too_long_is_left_behind_and_the_others_go_on(compiler):
    go, matchers = threading.Event(), Matchers(allowance=1.0)
    hung = stuck(go, GivenUp())
    other = Sequence(hung.request)
    first, last = following(compiler), following(compiler, "b")
    asked = [guided(first, 0), guided(hung, 1), guided(other, 2), guided(last, 3)]
    masks = matchers.masks(asked, [1] * 4)
    assert masks[1:3] == [TOO_SLOW, TOO_SLOW]  # who asks for the same need not try it
    assert (ids_of(masks[0]), ids_of(masks[3])) == ([A, B], [B])
    assert len(hung.request.grammar.tried) == 1
    go.set()


def test_a_step_has_one_deadline_and_leaves_few_behind_however_many_are_slow(monkeypatch):
    """Who was quick so far comes first; shapes that nobody asked for before have to wait."""
    monkeypatch.setattr(given_up, "MOST_LEFT", 1)
    compiler, known, new = GrammarCompiler(tokenizer(), VOCAB, {EOS}), *map(shape, ["a*b", "b"])
    go, matchers, quick = threading.Event(), Matchers(allowance=0.4), following(compiler)
    slow = [stuck(go, compiler.given_up, f"a{{{n}}}") for n in range(1, 32)]
    for sequence in slow:
        matchers._follow(guided(sequence)).seconds = 0.1
    asked = [guided(sequence, row) for row, sequence in enumerate([*slow, quick])]
    masks = matchers.masks(asked, [1] * 32)
    assert masks[:31] == [TOO_SLOW] * 31
    assert ids_of(masks[31]) == [A, B]
    assert sum(len(sequence.request.grammar.tried) for sequence in slow) == 2
    # No verdict on those that were not tried.
    assert [sequence.request.grammar.is_too_slow for sequence in slow[1:4]] == [True, False, False]
    assert ids_of(matchers.masks([guided(quick)], [1])[0]) == [A, B]
    assert compiler.compile(known) is quick.request.grammar
    with pytest.raises(RequestRefused, match=r"regex: it was not asked for before.*again\s+later"):
        compiler.compile(new)
    go.set()
    eventually(lambda: not compiler.given_up.is_crowded)
    assert compiler.compile(new) is not None


def test_whoever_has_no_time_left_is_given_up_before_he_is_tried():
    matchers, hung = Matchers(), stuck(threading.Event(), GivenUp())
    matchers._follow(guided(hung)).seconds = 3.0
    assert matchers.masks([guided(hung)], [1]) == [TOO_SLOW]
    assert not hung.request.grammar.tried


def test_a_verdict_is_remembered_longer_than_grammars_are_kept_but_not_without_end(monkeypatch):
    monkeypatch.setattr(grammar, "MOST_KEPT", 2)
    monkeypatch.setattr(given_up, "MOST_REMEMBERED", 2)
    compiler = GrammarCompiler(tokenizer(), VOCAB, {EOS})
    slow = following(compiler, "a").request
    slow.grammar.give_up()
    for number in range(2, 6):
        compiler.compile(shape(f"a{{{number}}}"))
    with pytest.raises(RequestRefused, match=r"structured_outputs\.regex: it is too ambiguous"):
        compiler.compile(slow.params.structured_outputs)
    for number in range(4, 6):
        compiler.compile(shape(f"a{{{number}}}")).give_up()
    assert compiler.compile(slow.params.structured_outputs) is not slow.grammar


@dataclass(frozen=True)
class Inputs:
    """As much of a step's inputs as masks need."""

    guided: list
    choices: list = field(default_factory=list)


def test_logits_of_what_may_not_come_are_minus_infinity_in_their_rows_alone(compiler):
    """Ids up to the very last, on a vocabulary that does not fill its last word of bits."""
    logits = torch.arange(3.0 * VOCAB).view(3, VOCAB)
    before = logits.clone()
    sequences = [following(compiler) for _ in range(2)]
    inputs = Inputs([guided(sequences[0], 0), guided(sequences[1], 2)])
    allowed = [1, 31, 32, VOCAB - 1]
    result = constrain(logits, inputs, [DEAD_END, pack_ids(allowed, VOCAB)])
    assert torch.equal(logits, before)
    assert torch.equal(result.logits[:2], before[:2])
    kept = result.logits[2] > -math.inf
    assert kept.nonzero().flatten().tolist() == allowed
    assert torch.equal(result.logits[2][kept], before[2][kept])
    assert result.faults == {0: DEAD_END}
