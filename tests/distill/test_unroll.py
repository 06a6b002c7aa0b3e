"""Unrolling all points of a text at once is drafting from each of them."""

import pytest
import torch

from minillm_serve.distill.evaluation import evaluate, hits, replay
from minillm_serve.distill.states import compute_states
from minillm_serve.distill.unroll import Piece, answer_hidden, answer_ids, points, unroll
from minillm_serve.models.draft_head import DraftHead
from minillm_serve.models.transformer import Transformer
from tests.distill.tiny import greedy_pieces, random_pieces, tiny_head, tiny_target
from tests.models.tiny import DenseAttend, prompt

SIZES = [(3, 7), (1, 5), (4, 1), (6, 2)]
DEPTH = 4


def draft_one_by_one(
    target: Transformer, head: DraftHead, text: list[int], depth: int
) -> tuple[list[int], list[torch.Tensor]]:
    """Drafts after a text as an engine does: the known rows, then one row a draft."""
    (hidden,) = compute_states(target, [text[:-1]]) if len(text) > 1 else (None,)
    before = torch.zeros(1, head.config.hidden_size, dtype=torch.float64)
    if hidden is not None:
        before = torch.cat([before, hidden])
    attend = DenseAttend(head.config)
    ids, drafts, features = torch.tensor(text), [], []
    start = 0
    for _ in range(depth):
        positions = torch.arange(start, start + len(ids))
        feature = head(target.embedding(ids), before, positions, attend)[-1:]
        draft = head.vocabulary[head.logits(feature).argmax(1)]
        start, ids, before = start + len(ids), draft, feature
        drafts.append(int(draft))
        features.append(feature[0])
    return drafts, features


@torch.no_grad()
def test_features_of_every_point_and_step_are_those_of_drafting_one_by_one() -> None:
    target = tiny_target()
    head, pieces = tiny_head(target), random_pieces(target, SIZES)
    steps = list(unroll(head, target.embedding.weight, pieces, DEPTH))
    for index, piece in enumerate(pieces):
        attend = DenseAttend(head.config)
        before = torch.cat([torch.zeros_like(piece.hidden[:1]), piece.hidden])
        for point in range(piece.num_points):
            known = piece.num_prompt_tokens + point
            attend = DenseAttend(head.config)
            start, rows = 0, before[:known]
            for step in range(min(DEPTH, piece.num_points - point)):
                stop = known + step
                ids = piece.token_ids[start:stop]
                feature = head(target.embedding(ids), rows, torch.arange(start, stop), attend)[-1:]
                sizes = [max(0, each.num_points - step) for each in pieces]
                found = steps[step].split(sizes)[index][point]
                torch.testing.assert_close(found, feature[0], rtol=0, atol=1e-12)
                start, rows = stop, feature


def test_points_lead_from_a_step_to_what_it_estimates() -> None:
    target = tiny_target()
    pieces = random_pieces(target, [(2, 3), (3, 1), (1, 4)])
    assert points(pieces, 0).tolist() == list(range(8))
    assert points(pieces, 1).tolist() == [1, 2, 5, 6, 7]
    assert points(pieces, 3).tolist() == [7]
    assert answer_ids(pieces)[points(pieces, 3)].tolist() == [int(pieces[2].token_ids[-1])]
    expected = pieces[0].hidden[1]
    assert torch.equal(answer_hidden(pieces, torch.float64)[0], expected)


@pytest.mark.parametrize("num_drafts", [1, 2, 4])
def test_a_replayed_answer_takes_the_steps_of_real_drafting(num_drafts: int) -> None:
    """B56: a run of kept drafts ends at the first wrong one, whatever comes after it."""
    target = tiny_target()
    head = tiny_head(target)
    (piece,) = greedy_pieces(target, [prompt(5)], 14)
    text, known, steps = piece.token_ids.tolist(), 6, 0
    kept = [0] * num_drafts
    with torch.no_grad():
        while known < len(text):
            drafts, _ = draft_one_by_one(target, head, text[:known], num_drafts)
            right = 0
            while right < min(num_drafts, len(text) - known) and (
                drafts[right] == text[known + right]
            ):
                kept[right] += 1
                right += 1
            known, steps = min(known + right + 1, len(text)), steps + 1
    (found,) = hits(head, target.embedding.weight, [piece], 4)
    replayed = replay(found, num_drafts)
    assert (replayed.num_steps, replayed.num_tokens) == (steps, 13)
    assert list(replayed.num_kept) == kept


def test_a_head_that_is_always_right_gives_all_drafts_and_one() -> None:
    right = torch.ones(4, 21, dtype=torch.bool)
    assert replay(right, 4).tokens_per_step == 5
    assert replay(right, 4).acceptance == [1, 1, 1, 1]
    assert replay(~right, 4).tokens_per_step == 1
    assert replay(~right, 4).num_reached == (20, 0, 0, 0)


def test_drawn_answers_are_no_measure_of_a_greedy_target() -> None:
    target = tiny_target()
    head, pieces = tiny_head(target), greedy_pieces(target, [prompt(4)], 6)
    drawn = Piece(pieces[0].token_ids, pieces[0].hidden, 4, "open", greedy=False)
    found = evaluate(head, target.embedding.weight, [*pieces, drawn], 2)
    assert list(found) == ["code"]
    assert set(found["code"]) == {1, 2}
