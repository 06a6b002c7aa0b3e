"""Prompts: decided by the seed, and what is held out is held out."""

import random

import pytest

from minillm_serve.distill.prompts import (
    KINDS,
    TEMPLATES,
    Question,
    first_round,
    second_round,
    templates,
)
from minillm_serve.distill.text import HELD_OUT, TRAINING
from minillm_serve.distill.topics import subjects, tasks, things

ARTICLES = ["Bees make {honey}. It is sweet. And the", "No sentence", ""]


def shard(seed: int, held_out: bool = False) -> list[Question]:
    draw, plan = random.Random(seed), HELD_OUT if held_out else TRAINING
    first = first_round(draw, plan, held_out)
    return first + second_round(draw, plan, held_out, ARTICLES)


@pytest.mark.parametrize("topics", [subjects, tasks, things])
def test_held_out_topics_are_no_training_topics(topics) -> None:
    training, held_out = topics(False), topics(True)
    assert not set(training) & set(held_out)
    assert len(set(training + held_out)) == len(training) + len(held_out)
    assert len(held_out) >= 10
    assert len(training) >= 5 * len(held_out)


@pytest.mark.parametrize("name", list(TEMPLATES))
def test_held_out_templates_are_no_training_templates(name: str) -> None:
    assert not set(templates(name, False)) & set(templates(name, True))
    assert len(templates(name, True)) >= max(HELD_OUT.retellings, TRAINING.retellings)
    assert all(template.count("{}") == 1 for template in TEMPLATES[name])


def test_prompts_are_a_function_of_the_seed() -> None:
    assert shard(3) == shard(3)
    assert shard(3) != shard(4)
    assert not {q.text for q in shard(3)} & {q.text for q in shard(3, held_out=True)}


def test_a_shard_has_all_kinds_in_their_numbers() -> None:
    kinds = [question.kind for question in shard(0)]
    assert set(kinds) == set(KINDS)
    assert kinds.count("code") == TRAINING.code
    assert kinds.count("summary") == TRAINING.retellings * len(ARTICLES)
    assert kinds.count("open") == TRAINING.articles + TRAINING.questions


def test_held_out_answers_that_are_judged_are_greedy() -> None:
    questions = shard(0, held_out=True)
    assert all(q.temperature == 0 for q in questions if not q.article)
    assert {q.temperature for q in shard(0)} > {0.0}


def test_articles_are_cut_to_whole_sentences_and_may_have_braces() -> None:
    texts = [question.text for question in shard(0) if question.kind == "summary"]
    assert any("Bees make {honey}. It is sweet." in text for text in texts)
    assert not any("And the" in text for text in texts)
    assert any("No sentence" in text for text in texts)


def test_a_smaller_plan_keeps_every_sort() -> None:
    small = TRAINING.scaled(6)
    assert min(small.articles, small.code, small.retellings, small.questions) >= 1
    assert small.size < 12
    assert TRAINING.scaled(TRAINING.size) == TRAINING
