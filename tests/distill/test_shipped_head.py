"""The head that comes with the embedded model."""

import pytest
import torch

import minillm_serve.distill.command as command
from minillm_serve.distill.card import CARD, render
from minillm_serve.distill.text import HELD_OUT, TRAINING
from minillm_serve.distill.training import TrainPlan
from minillm_serve.models.draft_file import read_draft_file, shape_of
from minillm_serve.models.draft_head import find_draft_head, load_draft_head
from minillm_serve.models.loader import load_model
from minillm_serve.models.resolve import resolve_model

NAME = "smollm2-135m"


def test_it_is_small_and_found_by_the_models_name() -> None:
    file = find_draft_head(NAME)
    assert file is not None
    assert file.stat().st_size <= 16e6


def test_its_card_says_what_its_file_says() -> None:
    file = find_draft_head(NAME)
    assert file is not None
    card = (file.parent / CARD).read_text("utf-8")
    assert card.startswith(render(file.parent))
    assert "What was tried" in card


def test_the_commands_defaults_are_those_it_was_made_with() -> None:
    file = find_draft_head(NAME)
    assert file is not None
    recipe = read_draft_file(file).recipe
    options = command._parser().parse_args([])
    assert options.model == NAME
    assert recipe["training"] == vars(TrainPlan())
    assert recipe["text"]["training"] == vars(TRAINING)
    assert recipe["text"]["held_out"] == vars(HELD_OUT)
    assert recipe["num_answer_tokens"] >= options.tokens
    assert len(read_draft_file(file).vocabulary) == options.vocabulary


def test_it_gives_two_tokens_a_step_on_code_and_fewer_on_prose() -> None:
    """The figures are those of the recipe's evaluation; see the card for how they were measured."""
    file = find_draft_head(NAME)
    assert file is not None
    held_out = read_draft_file(file).recipe["held_out"]
    assert held_out["code"]["tokens_per_step"]["4"] >= 2
    assert held_out["summary"]["tokens_per_step"]["4"] >= 1.5
    assert held_out["open"]["tokens_per_step"]["4"] >= 1


@pytest.mark.model
def test_it_fits_the_model_and_is_coded() -> None:
    file = find_draft_head(NAME)
    assert file is not None
    path = resolve_model(NAME)
    assert find_draft_head(path) == file
    target = load_model(path, dtype=torch.float32, device="cpu")
    assert read_draft_file(file).shape == shape_of(target.config)
    head = load_draft_head(file, target)
    assert all(linear.coded is not None for linear in head.matrices().values())
    assert head._rows.coded is not None
    assert head.bytes_read < 0.1 * target.bytes_read
    assert set(target.config.eos_token_ids) <= set(head.vocabulary.tolist())
