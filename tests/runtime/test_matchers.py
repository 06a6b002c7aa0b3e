"""Masks of grammars: a slow one is left behind, and what they do to logits."""

import math
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from minillm_serve.core import Request, SamplingParams, Sequence, StructuredOutputsParams
from minillm_serve.runtime.structured.constrain import constrain
from minillm_serve.runtime.structured.grammar import Grammar, GrammarCompiler, pack_ids
from minillm_serve.runtime.structured.matchers import DEAD_END, TOO_SLOW, Guided, Matchers
from tests.llm.tiny import tokenizer
from tests.models.tiny import VOCAB

A, B, EOS = (*tokenizer().convert_tokens_to_ids(["a", "b"]), 2)


@pytest.fixture(scope="module")
def compiler():
    return GrammarCompiler(tokenizer(), VOCAB, {EOS})


def following(compiler, regex="a*b", ids=()):
    """A sequence with so much output."""
    shape = StructuredOutputsParams(regex=regex)
    params = SamplingParams(structured_outputs=shape)
    grammar = compiler.compile(shape)
    request = Request(request_id="r", prompt_token_ids=(1,), params=params, grammar=grammar)
    sequence = Sequence(request)
    sequence.token_ids.extend(ids)
    return sequence


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

    def __init__(self, go):
        self.go = go

    def is_terminated(self):
        return False

    def fill_next_token_bitmask(self, bits):
        self.go.wait()


class StuckGrammar(Grammar):
    def __init__(self, go):
        super().__init__(None, pack_ids([A], VOCAB))
        self.go = go

    def matcher(self):
        return Stuck(self.go)


def test_whoever_takes_too_long_is_left_behind_and_the_others_go_on(compiler):
    go, matchers = threading.Event(), Matchers(allowance=1.0)
    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    stuck, other = (
        Sequence(Request(request_id="r", prompt_token_ids=(1,), params=params, grammar=grammar))
        for grammar in [StuckGrammar(go)] * 2
    )
    first, last = following(compiler), following(compiler, "b")
    asked = [guided(first, 0), guided(stuck, 1), guided(other, 2), guided(last, 3)]
    masks = matchers.masks(asked, [1] * 4)
    assert masks[1:3] == [TOO_SLOW, TOO_SLOW]  # who asks for the same need not try it
    assert (ids_of(masks[0]), ids_of(masks[3])) == ([A, B], [B])
    go.set()


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
