"""Drafts by another model, whose cache must follow all that happens to the sequences."""

import gc
from collections import Counter

import pytest
import torch

from minillm_serve.core import SamplingParams, ScheduledSequence
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.forward import Forward
from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.spec import draft_model
from minillm_serve.runtime.spec.draft_model import DraftModelDrafter
from minillm_serve.runtime.spec.picking import Picker
from tests.models.tiny import VOCAB, prompt
from tests.spec.by_hand import (
    CONFIG,
    CPU,
    GREEDY,
    ByHand,
    assert_all_greedy,
    dense_hidden,
    is_greedy,
    make_cache,
    make_items,
    make_model,
    make_sequence,
    make_similar,
)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def similar(model):
    return make_similar(model)


def drafting_by(small):
    def make(target):
        own = Forward(small, make_cache(small.config), TorchAttention())
        return DraftModelDrafter(own, target.model.config.vocab_size)

    return make


def test_a_model_that_drafts_for_itself_drafts_everything_right(model):
    """The prompt comes in chunks, then drafts of every number, and steps without any."""
    hand, sequence = ByHand(model, drafting_by(model)), make_sequence(prompt(11))
    for size in (4, 6, 1):
        hand.step({sequence: (size, 0)})
    for count in (3, 0, 0, 1, 5, 0, 2):
        hand.step({sequence: (1, count)})
    assert hand.num_accepted == hand.num_drafts == 11
    hand.preempt(sequence)
    for size in (9, len(sequence) - 9):
        hand.step({sequence: (size, 0)})
    hand.step({sequence: (1, 4)})
    assert hand.num_accepted == hand.num_drafts == 15
    assert_all_greedy(model, [sequence])


@pytest.mark.parametrize("seed", range(3))
def test_drafts_are_what_the_small_model_would_write(model, similar, seed):
    """Whatever steps came before: chunks, refused drafts, blocks taken away or found again."""
    hand = ByHand(model, drafting_by(similar))
    sequences = [make_sequence(prompt(n, seed=n), name=str(n)) for n in (3, 11, 20)]
    hand.run_at_random(sequences, seed, keep_blocks=True)
    assert 0.2 < hand.num_accepted / hand.num_drafts < 0.9  # both kinds of drafts were there
    for tokens, count, drafts in hand.drafter.proposed:
        assert len(drafts) == count
        assert is_greedy(similar, tokens, drafts)
    assert_all_greedy(model, sequences)


def test_no_token_is_read_twice_while_all_drafts_are_right(model):
    hand, sequence = ByHand(model, drafting_by(model)), make_sequence(prompt(5))
    drafter = hand.drafter.drafter
    read = []
    run = drafter.run
    drafter.run = lambda rows, before: read.extend(rows.positions.tolist()) or run(rows, before)
    hand.step({sequence: (5, 0)})
    for count in (4, 1, 3):
        hand.step({sequence: (1, count)})
    # Of each draft but the last it has read what comes next already.
    assert read == list(range(len(sequence) - 2))


def test_tokens_that_nobody_asks_drafts_for_are_read_together(model, monkeypatch):
    """No pass is larger than what may wait and a step, and drafts do not suffer from that."""
    monkeypatch.setattr(draft_model, "MOST_PENDING", 7)
    hand = ByHand(model, drafting_by(model))
    sequences = [make_sequence(prompt(n, seed=n), name=str(n)) for n in (5, 6)]
    hand.step({s: (len(s), 0) for s in sequences})
    counts, run = [], hand.drafter.drafter.run
    hand.drafter.drafter.run = lambda rows, before: (
        counts.append(len(rows.positions)) or run(rows, before)
    )
    for _ in range(10):
        hand.step({s: (1, 0) for s in sequences})
    assert counts == [8, 8]
    hand.step({s: (1, 3) for s in sequences})
    assert counts == [8, 8, 6, 2, 2]
    assert hand.num_accepted == hand.num_drafts == 6


def test_whoever_finds_a_prefix_finds_what_the_small_model_has_read_of_it(model):
    hand = ByHand(model, drafting_by(model))
    first, second = make_sequence(prompt(9)), make_sequence([*prompt(8), 5, 6, 7], name="b")
    hand.step({first: (9, 0)})
    second.block_table, second.num_computed = first.block_table[:2], 8
    hand.step({second: (3, 0), first: (1, 3)})
    hand.step({second: (1, 4)})
    assert hand.num_accepted == hand.num_drafts == 7


def test_whoever_begins_with_a_single_token_and_no_drafts_has_nothing_missing(model):
    """A further answer to a prompt begins at its last token, and drafts may come much later."""
    hand = ByHand(model, drafting_by(model))
    first, second = make_sequence(prompt(9)), make_sequence(prompt(9), name="b")
    hand.step({first: (9, 0)})
    second.block_table, second.num_computed = first.block_table[:2], 8
    for count in (0, 0, 4):
        hand.step({second: (1, count)})
    assert hand.num_accepted == hand.num_drafts == 4


def test_a_model_that_does_not_know_all_tokens_is_refused(model):
    forward = Forward(model, make_cache(CONFIG), TorchAttention())
    with pytest.raises(ValueError, match=f"knows {VOCAB} token ids, the model {VOCAB + 1}"):
        DraftModelDrafter(forward, VOCAB + 1)


def test_tokens_that_only_the_small_model_knows_are_never_drafted(model):
    """Vocabularies are padded, and not all to the same size."""
    forward = Forward(model, make_cache(CONFIG), TorchAttention())
    sequence = make_sequence([1, 2, 3])
    sequence.block_table = [0, 1, 2]
    items = [ScheduledSequence.of(sequence, 3).with_room(4)]
    (drafts,) = DraftModelDrafter(forward, VOCAB).propose(items).token_ids
    known = min(drafts)
    assert known < max(drafts)
    (drafts,) = DraftModelDrafter(forward, max(known, 1)).propose(items).token_ids
    assert max(drafts) < max(known, 1)


def test_nothing_is_kept_of_sequences_that_are_gone(model):
    hand, sequence = ByHand(model, drafting_by(model)), make_sequence(prompt(5))
    hand.step({sequence: (5, 0)})
    assert len(hand.drafter.drafter._progress) == 1
    hand.executor._rows = {}
    del sequence
    gc.collect()
    assert len(hand.drafter.drafter._progress) == 0


DRAWN = SamplingParams(temperature=0.7, top_k=6, top_p=0.9, max_tokens=None)
SEEDED = SamplingParams(temperature=0.7, seed=3, max_tokens=None)


def test_only_requests_without_a_seed_of_their_own_get_drafts_that_were_drawn(model, similar):
    """B62, B63: a batch of all kinds; q is the distribution that temperature and filters leave."""
    drafter = drafting_by(similar)(Forward(model, make_cache(CONFIG), TorchAttention()))
    items, counts = [], [2, 1, 3, 4]
    for i, params in enumerate([SEEDED, DRAWN, GREEDY, DRAWN]):
        sequence = make_sequence(prompt(4, seed=i), params, seed=i, name=str(i))
        sequence.block_table = [2 * i, 2 * i + 1]
        items.append(ScheduledSequence.of(sequence, 4).with_room(counts[i]))
    proposal = drafter.propose(items)
    drafts = proposal.token_ids
    assert [len(d) for d in drafts] == counts
    assert sorted(proposal.drawn) == [1, 3]
    assert proposal.probs.shape == (2, 4, VOCAB)
    assert proposal.probs.dtype is torch.float32
    for index in (0, 2):
        assert is_greedy(similar, items[index].sequence.token_ids, drafts[index])
    for row, index in enumerate(proposal.drawn):
        hidden = dense_hidden(similar, [*items[index].sequence.token_ids, *drafts[index]])
        for j, draft in enumerate(drafts[index]):
            wanted = filtered(similar.logits(hidden[3 + j]))
            assert torch.allclose(proposal.probs[row, j].double(), wanted, atol=1e-6)
            assert wanted[draft] > 0


def filtered(logits):
    """Temperature 0.7, the 6 likeliest, of those 0.9 of the probability, in plain words."""
    probs = (logits / 0.7).softmax(-1)
    order = probs.argsort(descending=True)[:6]
    share = probs[order] / probs[order].sum()
    kept = order[: int((share.cumsum(0) < 0.9).sum()) + 1]
    out = torch.zeros_like(probs)
    out[kept] = probs[kept] / probs[kept].sum()
    return out


@pytest.mark.parametrize("vocabulary", [None, [8, 1, 5, 2, 6]], ids=["all", "some"])
def test_drafts_are_drawn_from_what_is_reported(vocabulary):
    """B61, B62: chi-square of 20,000 sequences' draws, the second draft's alone as well."""
    size, vocab = 20_000, 9
    ids = list(range(vocab)) if vocabulary is None else vocabulary
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(2, len(ids), generator=draw, dtype=torch.float64) * 1.5
    params = SamplingParams(temperature=0.8, top_k=4)
    sequences = [make_sequence([1], params, seed=i) for i in range(size)]
    mapped = None if vocabulary is None else torch.tensor(vocabulary)
    picker = Picker(make_items(sequences, [2] * size), mapped, vocab, CPU)
    picked = [picker.pick(row.expand(size, -1)) for row in logits]
    proposal = picker.proposal(list(range(size)))
    assert proposal.drawn == tuple(range(size))
    assert proposal.token_ids == torch.stack(picked, 1).tolist()
    for j in range(2):
        q = proposal.probs[:, j]
        assert torch.equal(q, q[:1].expand(size, -1))
        assert q[0].sum() == pytest.approx(1)
        wanted = (logits[j] / 0.8).softmax(-1)
        wanted[wanted < wanted.topk(4).values[-1]] = 0
        assert q[0, ids].double() == pytest.approx(wanted / wanted.sum(), abs=1e-6)
        counts = torch.bincount(picked[j], minlength=vocab)
        assert p_value(counts, q[0]) > 1e-4
    pairs = Counter(map(tuple, proposal.token_ids))
    both = (proposal.probs[0, 0][:, None] * proposal.probs[0, 1]).flatten()
    counts = torch.tensor([pairs[divmod(i, vocab)] for i in range(vocab * vocab)])
    assert p_value(counts, both) > 1e-4  # the two are independent
