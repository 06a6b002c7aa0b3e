"""Copying first, and another drafter for whoever has nothing to copy."""

import torch

from minillm_serve.runtime.spec.drafter import Proposal
from minillm_serve.runtime.spec.lookup_first import LookupFirstDrafter
from minillm_serve.runtime.spec.ngram import NgramDrafter
from tests.spec.by_hand import make_items, make_sequence

REPEATS, NEW = [1, 2, 3, 1, 2], [4, 5, 6, 7]


class Draws:
    """Draws 8s for whoever it is asked for, and keeps what it was shown."""

    kv_cache = object()

    def __init__(self):
        self.asked, self.observed = [], []

    def propose(self, items):
        self.asked.append([item.sequence.token_ids for item in items])
        drafts = [[8] * item.num_drafts for item in items]
        most = max(map(len, drafts))
        return Proposal(drafts, tuple(range(len(items))), torch.ones(len(items), most, 9) / 9)

    def observe(self, *step):
        self.observed.append(step)


def asked_for(texts, counts):
    sequences = [make_sequence(text) for text in texts]
    for sequence in sequences:
        sequence.num_computed = len(sequence.token_ids) - 1
    return make_items(sequences, counts)


def test_only_those_with_nothing_to_copy_are_asked_for_elsewhere():
    other = Draws()
    drafter = LookupFirstDrafter(NgramDrafter(), other)
    proposal = drafter.propose(asked_for([NEW, REPEATS, NEW], [2, 3, 1]))
    assert proposal.token_ids == [[8, 8], [3, 1, 2], [8]]
    assert other.asked == [[NEW, NEW]]
    # What was copied is certain; what was drawn keeps its distribution, in its own order.
    assert proposal.drawn == (0, 2)
    assert proposal.probs.shape == (2, 2, 9)


def test_where_all_is_copied_nobody_else_is_asked():
    other = Draws()
    proposal = LookupFirstDrafter(NgramDrafter(), other).propose(asked_for([REPEATS], [2]))
    assert (proposal.token_ids, proposal.drawn, proposal.probs) == ([[3, 1]], (), None)
    assert other.asked == []


def test_the_other_sees_every_step_and_its_cache_is_the_engines_to_copy():
    other = Draws()
    drafter = LookupFirstDrafter(NgramDrafter(), other)
    drafter.observe("batch", "inputs", "hidden")
    assert other.observed == [("batch", "inputs", "hidden")]
    assert drafter.kv_cache is other.kv_cache
