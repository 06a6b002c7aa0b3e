"""The whole recipe on a tiny random model: text, states, training, file, card."""

import json
from itertools import islice
from pathlib import Path

import pytest
import torch

from minillm_serve.cli import main
from minillm_serve.distill.card import CARD, render
from minillm_serve.distill.states import compute_states, pieces_of
from minillm_serve.distill.text import (
    Sample,
    TextPlan,
    check_plan,
    collect,
    frequent_ids,
    shards,
)
from minillm_serve.llm import LLM
from minillm_serve.models.draft_file import read_draft_file
from minillm_serve.models.draft_head import FILE, load_draft_head
from minillm_serve.models.loader import load_model
from tests.distill.tiny import CODED, tiny_target
from tests.llm.tiny import save_tiny
from tests.models.tiny import our_logits, prompt

OPTIONS = "--tokens 60 --prompts 6 --max-tokens 6 --vocabulary 40 --steps 4 --points 20 --depth 2"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    return save_tiny(directory, max_position_embeddings=1024, **CODED)


@pytest.fixture(scope="module")
def plan() -> TextPlan:
    plan = TextPlan(seed=3, max_tokens=5)
    return TextPlan(3, 5, plan.training.scaled(6), plan.held_out.scaled(4))


@pytest.fixture(scope="module")
def llm(model: Path) -> LLM:
    return LLM(model, num_blocks=400, prefix_cache=None)


def test_the_command_makes_a_head_and_its_card(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, work = tmp_path / "head", tmp_path / "work"
    command = ["train-drafter", "--model", str(model), "--output", str(out), "--work", str(work)]
    assert main([*command, *OPTIONS.split()]) == 0
    assert str(out / FILE) in capsys.readouterr().out
    first = read_draft_file(out / FILE)
    assert len(first.vocabulary) == 40
    assert first.recipe["training"]["steps"] == 4
    assert first.recipe["num_answer_tokens"] >= 60
    assert (out / CARD).read_text("utf-8") == render(out)
    head = load_draft_head(out, load_model(model, dtype=torch.float32, device="cpu"))
    assert head.fc.coded is not None

    # A second run finds text, states and checkpoint, and comes to the same head.
    (work / "training-0000.states.safetensors").unlink()
    assert main([*command, *OPTIONS.split()]) == 0
    again = read_draft_file(out / FILE)
    for name, weight in first.matrices.items():
        assert torch.equal(weight, again.matrices[name])
    assert again.recipe["held_out"] == first.recipe["held_out"]


def test_text_of_another_plan_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_plan(tmp_path, model.name, TextPlan(seed=1))
    command = ["train-drafter", "--model", str(model), "--work", str(tmp_path)]
    assert main([*command, *OPTIONS.split()]) == 1
    assert "another plan" in capsys.readouterr().err


def test_shards_are_a_function_of_seed_and_number(llm: LLM, plan: TextPlan, tmp_path: Path) -> None:
    whole = list(islice(shards(llm, plan, tmp_path / "a"), 2))
    assert whole[0] != whole[1]
    assert list(islice(shards(llm, plan, tmp_path / "b"), 2)) == whole
    # An interrupted run has lost the second: it is made again, and the first is read.
    (tmp_path / "a" / "training-0001.json").unlink()
    before = (tmp_path / "a" / "training-0000.json").stat().st_mtime_ns
    assert list(islice(shards(llm, plan, tmp_path / "a"), 2)) == whole
    assert (tmp_path / "a" / "training-0000.json").stat().st_mtime_ns == before


def test_shards_are_collected_until_there_is_enough(
    llm: LLM, plan: TextPlan, tmp_path: Path
) -> None:
    (first,) = collect(shards(llm, plan, tmp_path), 1)
    tokens = sum(sample.num_answer_tokens for sample in first)
    assert len(list(collect(shards(llm, plan, tmp_path), tokens))) == 1
    assert len(list(collect(shards(llm, plan, tmp_path), tokens + 1))) == 2


def test_samples_are_prompt_and_answer(llm: LLM, plan: TextPlan, tmp_path: Path) -> None:
    for sample in next(shards(llm, plan, tmp_path, held_out=True)):
        assert 1 <= sample.num_answer_tokens <= plan.max_tokens
        opening = llm.tokenizer.decode(sample.token_ids[: sample.num_prompt_tokens])
        assert opening.endswith("assistant: ")


def test_states_are_the_outputs_that_the_target_has_alone() -> None:
    target = tiny_target()
    texts = [prompt(length, seed) for seed, length in enumerate([5, 1, 9, 700, 600, 30])]
    for text, states in zip(texts, compute_states(target, texts), strict=True):
        expected = our_logits(target, text)
        torch.testing.assert_close(target.logits(states), expected, rtol=0, atol=1e-9)


def test_states_are_kept_and_read(tmp_path: Path) -> None:
    target, file = tiny_target(torch.float32), tmp_path / "states.safetensors"
    samples = [Sample("code", 2, prompt(6), 0.0), Sample("open", 3, prompt(4, 1), 0.8)]
    made, read = pieces_of(target, samples, file), pieces_of(target, samples, file)
    for ours, theirs, sample in zip(made, read, samples, strict=True):
        assert torch.equal(ours.hidden, theirs.hidden)
        assert ours.hidden.shape == (len(sample.token_ids) - 1, 64)
    assert [piece.greedy for piece in made] == [True, False]


def test_frequent_ids_count_answers_and_keep_the_end() -> None:
    samples = [Sample("code", 2, [9, 9, 5, 5, 7], 0.0), Sample("code", 1, [9, 7, 5, 2], 0.0)]
    assert frequent_ids(samples, 3, 12) == [2, 5, 7]
    assert frequent_ids(samples, 3, 12, always=(11,)) == [5, 7, 11]
    assert frequent_ids(samples, 5, 12) == [0, 1, 2, 5, 7]
    assert frequent_ids(samples, 99, 12) == list(range(12))


def test_a_target_that_looks_back_less_far_is_refused() -> None:
    target = tiny_target()
    windows = (4,) * target.config.num_layers
    target.config = type(target.config)(**{**vars(target.config), "sliding_windows": windows})
    with pytest.raises(ValueError, match="looks back 4 tokens"):
        compute_states(target, [prompt(5)])


@pytest.mark.model
@pytest.mark.slow
def test_the_command_runs_on_the_real_model(tmp_path: Path) -> None:
    options = "--tokens 1 --prompts 6 --max-tokens 8 --steps 2 --points 40 --depth 2"
    places = ["--output", str(tmp_path / "head"), "--work", str(tmp_path / "work")]
    assert main(["train-drafter", *places, *options.split()]) == 0
    found = json.dumps(read_draft_file(tmp_path / "head" / FILE).recipe["held_out"])
    assert "tokens_per_step" in found
