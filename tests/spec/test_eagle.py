"""Drafts by a head that reads what the model gives, at every position that it should."""

import gc
import random

import pytest
import torch

from minillm_serve.core import SamplingParams
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.spec import eagle
from minillm_serve.runtime.spec.eagle import EagleDrafter
from tests.models.tiny import VOCAB, DenseAttend, prompt
from tests.spec.by_hand import (
    ByHand,
    assert_all_greedy,
    dense_hidden,
    make_cache,
    make_head,
    make_items,
    make_model,
    make_sequence,
)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def head(model):
    return make_head(model)


@pytest.fixture
def make(model, head):
    def drafter(target):
        cache = make_cache(head.config)
        return EagleDrafter(head, model.embedding, cache, TorchAttention(), vocab_size=VOCAB)

    def by_hand(instead=None):
        return ByHand(model, drafter, instead)

    return by_hand


@pytest.fixture
def check(model, head):
    """Compares drafts with those of one dense pass over everything known, and what follows it."""

    def draft_densely(tokens, count, unknown=()):
        attend = DenseAttend(head.config)
        outputs = dense_hidden(model, tokens)
        before = torch.cat([torch.zeros_like(outputs[:1]), outputs[:-1]])
        before[list(unknown)] = 0
        ids, positions = torch.tensor(tokens), torch.arange(len(tokens))
        drafts = []
        for _ in range(count):
            feature = head(model.embedding(ids), before, positions, attend)[-1:]
            ids = head.vocabulary[head.logits(feature).argmax(dim=-1)]
            positions, before = positions[-1:] + 1, feature
            drafts.append(int(ids))
        return drafts

    def compare(proposed, **options):
        with torch.inference_mode():
            for tokens, count, drafts in proposed:
                assert drafts == draft_densely(tokens, count, **options)

    return compare


@pytest.fixture
def nearly_right(model):
    """Drafts of which none, some or all are right: the head's own never would be."""
    draw = random.Random(0)

    def guess(tokens, count):
        guessed = list(tokens)
        for _ in range(count):
            guessed.append(int(model.logits(dense_hidden(model, guessed)[-1]).argmax()))
        drafts, wrong = guessed[len(tokens) :], draw.randint(0, count)
        if wrong < count:
            drafts[wrong] = (drafts[wrong] + 1) % VOCAB
        return drafts

    return guess


@pytest.mark.parametrize("seed", range(3))
def test_drafts_are_those_of_one_pass_over_the_whole_text(model, make, check, nearly_right, seed):
    """Whatever steps came before: chunks, refused drafts, none at all, blocks taken away."""
    hand = make(nearly_right)
    sequences = [make_sequence(prompt(n, seed=n), name=str(n)) for n in (3, 11, 20)]
    hand.run_at_random(sequences, seed)
    assert 0.3 < hand.num_accepted / hand.num_drafts < 0.7
    check(hand.drafter.proposed)
    assert_all_greedy(model, sequences)


def test_drafts_are_among_the_ids_that_the_head_knows(make, head):
    hand, sequence = make(), make_sequence(prompt(9))
    hand.step({sequence: (9, 0)})
    for count in (4, 2, 5):
        hand.step({sequence: (1, count)})
    drafts = {draft for *_, drafts in hand.drafter.proposed for draft in drafts}
    assert drafts <= set(head.vocabulary.tolist())
    assert len(drafts) > 3


def test_no_row_is_computed_twice_but_those_of_drafts(make, nearly_right):
    hand, sequence = make(nearly_right), make_sequence(prompt(9))
    drafter, read = hand.drafter.drafter, []
    run = drafter.run
    drafter.run = lambda rows, before: read.extend(rows.positions.tolist()) or run(rows, before)
    for size in (4, 5):
        hand.step({sequence: (size, 0)})
    for count in (1, 1, 0, 0, 1, 1):
        last = len(sequence)
        hand.step({sequence: (1, count)})  # a single draft takes a first pass only
    assert read == list(range(last))


def test_rows_that_nobody_asks_drafts_for_are_computed_together(make, check, monkeypatch):
    """What the model gave is not kept forever, and drafts do not suffer from that."""
    monkeypatch.setattr(eagle, "MOST_PENDING", 7)
    hand = make()
    sequences = [make_sequence(prompt(n, seed=n), name=str(n)) for n in (5, 6)]
    hand.step({s: (len(s), 0) for s in sequences})
    trails = [hand.drafter.drafter._trails[s] for s in sequences]
    kept = []
    for _ in range(12):
        hand.step({s: (1, 0) for s in sequences})
        kept.append(max(len(trail.pieces) for trail in trails))
    assert kept == [2, 3, 4, 1] + [2, 3, 4, 1] * 2
    hand.step({s: (1, 3) for s in sequences})
    check(hand.drafter.proposed)


def test_whoever_finds_a_prefix_finds_the_heads_rows_of_it(make, check):
    """All but one output of the model: what came out for the last token of the prefix."""
    hand = make()
    first, second = make_sequence(prompt(9)), make_sequence([*prompt(8), 5, 6, 7], name="b")
    hand.step({first: (9, 0)})
    second.block_table, second.num_computed = first.block_table[:2], 8
    hand.step({second: (3, 0)})
    hand.step({second: (1, 4)})
    hand.step({second: (1, 2)})
    assert len(hand.drafter.proposed) == 2
    check(hand.drafter.proposed, unknown=[8])


def test_blocks_that_were_lost_and_partly_found_again_only_cost_good_drafts(model, make):
    hand = make()
    sequences = [make_sequence(prompt(n, seed=n), name=str(n)) for n in (3, 11, 20)]
    hand.run_at_random(sequences, 0, preempt=0.3, keep_blocks=True)
    assert all(len(drafts) == count for _, count, drafts in hand.drafter.proposed)
    assert_all_greedy(model, sequences)


def test_a_sequence_that_it_has_never_seen_gets_no_drafts(make, check):
    hand = make()
    seen, unseen = make_sequence(prompt(6)), make_sequence(prompt(5, seed=1), name="b")
    drawing = make_sequence(prompt(7), SamplingParams(max_tokens=None), name="c")
    hand.step({seen: (6, 0), drawing: (7, 0)})
    unseen.block_table, unseen.num_computed = [hand.free.pop(), hand.free.pop()], 4
    hand.resize(seen, 12)
    hand.resize(drawing, 12)
    proposal = hand.drafter.propose(make_items([unseen, seen, drawing], [2, 3, 2]))
    assert [len(drafts) for drafts in proposal.token_ids] == [0, 3, 2]
    check(hand.drafter.proposed[1:2])
    assert proposal.drawn == (2,)
    assert proposal.probs[0, :2].sum(dim=-1).tolist() == pytest.approx([1, 1])
    assert hand.drafter.propose(make_items([unseen], [2])).token_ids == [[]]


def test_nothing_is_kept_of_sequences_that_are_gone(make):
    hand, sequence = make(), make_sequence(prompt(5))
    hand.step({sequence: (5, 0)})
    hand.step({sequence: (1, 3)})
    assert len(hand.drafter.drafter._trails) == 1
    hand.executor._rows = {}
    del sequence
    gc.collect()
    assert len(hand.drafter.drafter._trails) == 0
