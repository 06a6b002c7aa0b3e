"""Drafts copied from further up in the same text."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minillm_serve.runtime.spec.ngram import NgramDrafter
from tests.spec.by_hand import make_items, make_sequence


def drafts_after(tokens, count=3, **options):
    (drafts,) = NgramDrafter(**options).propose(make_items([ready(tokens)], [count])).token_ids
    return drafts


def ready(tokens):
    sequence = make_sequence(tokens)
    sequence.num_computed = len(tokens) - 1
    return sequence


@pytest.mark.parametrize(
    ("tokens", "drafts"),
    [
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5]),
        ([1, 2, 3, 9, 1, 2, 4, 8, 1, 2], [4, 8, 1]),  # the most recent of two places
        ([7, 1, 2, 3, 9, 8, 1, 2, 4, 8, 7, 1, 2], [3, 9, 8]),  # the longer piece, though older
        ([1, 2, 3, 4, 5, 6], []),
        ([1, 2, 3, 1], []),  # a single token does not do
        ([1, 2], []),
        ([1], []),
    ],
)
def test_drafts_are_what_followed_the_last_tokens_before(tokens, drafts):
    assert drafts_after(tokens) == drafts


def test_a_loop_is_drafted_for_as_long_as_one_likes():
    """What is copied runs into the end of the text, and goes on with what was copied."""
    assert drafts_after([5, 5, 5], count=4) == [5, 5, 5, 5]
    assert drafts_after([9, 1, 2, 3, 1, 2, 3, 1, 2], count=7) == [3, 1, 2, 3, 1, 2, 3]


def test_min_n_and_max_n_set_how_long_a_piece_is_looked_for():
    tokens = [1, 2, 3, 7, 8, 2, 3, 9, 8, 1, 2, 3]
    assert drafts_after(tokens, count=1, max_n=3) == [7]
    assert drafts_after(tokens, count=1, max_n=2) == [9]
    assert drafts_after([4, 1, 5, 4], count=1, min_n=1) == [1]
    assert drafts_after(tokens, max_n=6, min_n=4) == []


@pytest.mark.parametrize(("min_n", "max_n"), [(0, 2), (3, 2)])
def test_sizes_that_make_no_sense_are_refused(min_n, max_n):
    with pytest.raises(ValueError, match=f"min_n={min_n}, max_n={max_n}"):
        NgramDrafter(max_n=max_n, min_n=min_n)


def test_rows_of_a_batch_get_as_many_drafts_as_they_have_room_and_matches_for():
    """B64: one has room for 4, one finds nothing, one has room for 1."""
    drafter = NgramDrafter()
    sequences = [ready([1, 2, 3, 4, 1, 2]), ready([1, 2, 3]), ready([1, 2, 3, 1, 2])]
    proposal = drafter.propose(make_items(sequences, [4, 4, 1]))
    assert proposal.token_ids == [[3, 4, 1, 2], [], [3]]
    assert (proposal.drawn, proposal.probs) == ((), None)


def naive(tokens, count, min_n, max_n):
    """Looks at every place, the longest pieces first, the last places first."""
    for n in range(max_n, min_n - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[-n:]:
                copied = list(tokens)
                for place in range(end, end + count):
                    copied.append(copied[place])
                return copied[len(tokens) :]
    return []


@given(
    bunches=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=20),
    sizes=st.tuples(st.integers(1, 3), st.integers(0, 2)),
    asked=st.lists(st.booleans(), min_size=20, max_size=20),
    count=st.integers(1, 6),
)
def test_the_index_finds_what_a_search_through_all_of_the_text_finds(bunches, sizes, asked, count):
    """Tokens come in bunches, and not every time are drafts asked for."""
    min_n, max_n = sizes[0], sum(sizes)
    drafter = NgramDrafter(max_n=max_n, min_n=min_n)
    sequence = ready(bunches[0])
    for i, bunch in enumerate(bunches):
        sequence.token_ids += bunch if i else []
        sequence.num_computed = len(sequence) - 1
        if asked[i]:
            (drafts,) = drafter.propose(make_items([sequence], [count])).token_ids
            assert drafts == naive(sequence.token_ids, count, min_n, max_n)


def test_nothing_is_kept_of_sequences_that_are_gone():
    drafter, sequence = NgramDrafter(), ready([1, 2, 3, 1, 2])
    drafter.propose(make_items([sequence], [2]))
    assert len(drafter._indices) == 1
    del sequence
    gc.collect()
    assert len(drafter._indices) == 0
