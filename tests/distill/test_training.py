"""Training: what it learns, that it goes on where it stopped, and how it orders its texts."""

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch

import minillm_serve.distill.training as training
from minillm_serve.distill.evaluation import evaluate
from minillm_serve.distill.training import (
    TrainPlan,
    batches,
    fold,
    loss_of,
    scale_of,
    train,
    trained,
)
from minillm_serve.distill.unroll import Piece, unroll
from minillm_serve.models.draft_head import DraftHead
from minillm_serve.models.transformer import Transformer
from tests.distill.tiny import greedy_pieces, random_pieces, tiny_head, tiny_target
from tests.models.tiny import VOCAB, prompt

PLAN = TrainPlan(
    steps=6, points=12, depth=3, shallow_steps=2, warm_up=2, learning_rate=3e-3, fast=False
)


@pytest.fixture(scope="module")
def target() -> Transformer:
    return tiny_target(torch.float32)


@pytest.fixture(scope="module")
def pieces(target: Transformer) -> list[Piece]:
    return random_pieces(target, [(3, 8), (2, 6), (5, 9), (4, 7), (1, 3)])


def run(
    target: Transformer, pieces: list[Piece], plan: TrainPlan, file: Path, every: int = 50
) -> tuple[DraftHead, list[float]]:
    head = DraftHead(target, torch.arange(0, VOCAB, 3))
    losses = train(head, target.embedding.weight, pieces, plan, file, every=every, progress=False)
    return head, losses


def test_an_interrupted_training_goes_on_to_the_very_same_weights(
    target: Transformer, pieces: list[Piece], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, losses = run(target, pieces, PLAN, tmp_path / "whole.pt")

    update, made = training._update, []

    def interrupted(*arguments: object) -> float:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(update(*arguments))
        return made[-1]

    monkeypatch.setattr(training, "_update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(target, pieces, PLAN, tmp_path / "parts.pt", every=2)
    monkeypatch.setattr(training, "_update", update)
    resumed, again = run(target, pieces, PLAN, tmp_path / "parts.pt", every=2)
    assert again == losses
    for ours, theirs in zip(trained(resumed), trained(whole), strict=True):
        assert torch.equal(ours, theirs)


def test_a_finished_training_is_read_and_not_repeated(
    target: Transformer, pieces: list[Piece], tmp_path: Path
) -> None:
    first, losses = run(target, pieces, PLAN, tmp_path / "state.pt")
    second, again = run(target, pieces, PLAN, tmp_path / "state.pt")
    assert again == losses
    assert torch.equal(first.fc.weight, second.fc.weight)


def test_a_checkpoint_of_another_plan_is_refused(
    target: Transformer, pieces: list[Piece], tmp_path: Path
) -> None:
    run(target, pieces, PLAN, tmp_path / "state.pt")
    with pytest.raises(ValueError, match="another training"):
        run(target, pieces, replace(PLAN, seed=1), tmp_path / "state.pt")


def test_the_seed_decides_the_weights(
    target: Transformer, pieces: list[Piece], tmp_path: Path
) -> None:
    one, _ = run(target, pieces, PLAN, tmp_path / "one.pt")
    same, _ = run(target, pieces, PLAN, tmp_path / "same.pt")
    other, _ = run(target, pieces, replace(PLAN, seed=1), tmp_path / "other.pt")
    assert torch.equal(one.fc.weight, same.fc.weight)
    assert not torch.equal(one.fc.weight, other.fc.weight)


def test_a_trained_head_drafts_better_than_it_did(target: Transformer, tmp_path: Path) -> None:
    texts = greedy_pieces(target, [prompt(4, seed) for seed in range(6)], 12)
    head = DraftHead(target, torch.arange(VOCAB))
    training.initialise(head, 0)
    before = evaluate(head, target.embedding.weight, texts, 3)["code"][3].tokens_per_step
    plan = replace(PLAN, steps=60, points=30, shallow_steps=20, learning_rate=1e-2, dropout=0.0)
    losses = train(
        head, target.embedding.weight, texts, plan, tmp_path / "state.pt", progress=False
    )
    after = evaluate(head, target.embedding.weight, texts, 3)["code"][3].tokens_per_step
    assert losses[-1] < 0.7 * losses[0]
    assert after > before + 0.5


def test_only_the_head_learns(target: Transformer, pieces: list[Piece]) -> None:
    head = tiny_head(target)
    loss_of(head, target.embedding.weight, pieces, PLAN, step=5).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in trained(head))
    assert all(not weight.requires_grad for weight in target.parameters())


def test_every_text_is_read_once_a_round(pieces: list[Piece]) -> None:
    read = [piece for batch in islice(batches(pieces, PLAN), 10) for piece in batch]
    for start in range(0, len(read) - len(pieces) + 1, len(pieces)):
        assert {id(each) for each in read[start : start + len(pieces)]} == set(map(id, pieces))


def test_a_scale_is_folded_into_the_weights(target: Transformer, pieces: list[Piece]) -> None:
    embedding, head = target.embedding.weight, tiny_head(target)
    scale = scale_of(embedding)
    assert (embedding * scale).square().mean().sqrt().item() == pytest.approx(1)
    with torch.no_grad():
        before = list(unroll(head, embedding * scale, pieces, 2))
        fold(head, scale)
        after = list(unroll(head, embedding, pieces, 2))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_deep_steps_come_last() -> None:
    assert [PLAN.depth_at(step) for step in range(4)] == [1, 1, 3, 3]


def test_the_learning_rate_rises_and_falls_to_nothing() -> None:
    rates = [TrainPlan(steps=100, warm_up=10).rate(step) for step in range(101)]
    assert rates[0] < rates[5] < rates[9]
    assert max(rates) <= TrainPlan().learning_rate
    assert rates[100] == 0
    assert all(a >= b for a, b in pairwise(rates[10:]))
