"""Log probabilities against log_softmax, ranks and ties included."""

import math

import pytest
import torch

from minillm_serve.runtime.sampling import logprobs


def token_logprobs(logits, ids, counts):
    found = logprobs.token_logprobs(logits, torch.tensor(ids, dtype=torch.int64), max(counts))
    return found.entries(counts)


LOGITS = torch.tensor([[0.0, 2.0, 1.0, 2.0], [5.0, 1.0, 1.0, 1.0]])


def test_the_given_token_comes_first_and_then_the_likeliest_by_rank():
    first, second = token_logprobs(LOGITS, [0, 0], [2, 3])
    assert list(first) == [0, 1, 3]
    assert [first[t].rank for t in first] == [4, 1, 2]  # of equal logits the lower id first (B55)
    assert list(second) == [0, 1, 2]
    want = LOGITS.double().log_softmax(-1)
    for row, entry in enumerate((first, second)):
        for token, value in entry.items():
            assert value.logprob == pytest.approx(want[row, token].item(), abs=1e-6)


def test_zero_gives_the_token_alone_b96():
    (entry,) = token_logprobs(LOGITS[:1], [2], [0])
    assert list(entry) == [2]
    assert entry[2].rank == 3


def test_more_than_the_vocabulary_is_the_vocabulary_b95():
    (entry,) = token_logprobs(LOGITS[:1], [2], [20])
    assert sorted(entry) == [0, 1, 2, 3]
    assert sum(math.exp(value.logprob) for value in entry.values()) == pytest.approx(1)


@pytest.mark.parametrize("count", [1, 3, 5, 64])
def test_ranks_follow_a_stable_sort_also_among_many_ties(count):
    logits = torch.randint(0, 4, (6, 64), generator=torch.Generator().manual_seed(0)).float()
    entries = token_logprobs(logits, [5] * 6, [count] * 6)
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    for row, entry in enumerate(entries):
        by_rank = sorted(entry, key=lambda token: entry[token].rank)
        wanted = order[row, :count].tolist()
        assert by_rank[:count] == wanted
        assert entry[5].rank == order[row].tolist().index(5) + 1


def test_no_rows_give_no_entries():
    found = logprobs.token_logprobs(LOGITS[:0], torch.tensor([], dtype=torch.int64), 3)
    assert found.entries([]) == []
