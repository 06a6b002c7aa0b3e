"""Drafts by the model's own first layers, on the model's own cache."""

import pytest

from minillm_serve.runtime.spec.early_exit import EarlyExitDrafter
from tests.models.tiny import prompt
from tests.spec.by_hand import (
    CONFIG,
    ByHand,
    assert_all_greedy,
    is_greedy,
    make_model,
    make_sequence,
)

ALL = CONFIG.num_layers


@pytest.fixture(scope="module")
def model():
    return make_model()


def leave_after(num_layers):
    return lambda forward: EarlyExitDrafter(forward, num_layers)


def test_the_whole_model_drafts_everything_right(model):
    hand, sequence = ByHand(model, leave_after(ALL)), make_sequence(prompt(9))
    hand.step({sequence: (9, 0)})
    for count in (1, 4, 2, 5):
        hand.step({sequence: (1, count)})
    assert hand.num_accepted == hand.num_drafts == 12
    assert_all_greedy(model, [sequence])


@pytest.mark.parametrize("num_layers", [1, 2, ALL])
def test_drafts_are_what_the_first_layers_would_write(model, num_layers):
    """Whatever steps came before: chunks, refused drafts, blocks that were taken away."""
    hand = ByHand(model, leave_after(num_layers))
    sequences = [make_sequence(prompt(n, seed=n), name=str(n)) for n in (3, 11, 20)]
    hand.run_at_random(sequences, seed=num_layers, keep_blocks=True)
    assert len(hand.drafter.proposed) > 10
    for tokens, count, drafts in hand.drafter.proposed:
        assert len(drafts) == count
        assert is_greedy(model, tokens, drafts, num_layers)
    assert_all_greedy(model, sequences)


@pytest.mark.parametrize("num_layers", [0, ALL + 1])
def test_layers_that_the_model_has_not_are_refused(model, num_layers):
    with pytest.raises(ValueError, match=f"num_layers={num_layers}: the model has {ALL}"):
        ByHand(model, leave_after(num_layers))
