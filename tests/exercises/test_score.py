"""What a learner sees: ticks, the first difference, hints, drawings; and what nbgrader reads."""

import random
from typing import Any

import pytest

from minillm_serve.course.exercises import check, check_hidden, hint
from minillm_serve.course.exercises.block_map import BlockMap
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.exercise import (
    Case,
    Check,
    CheckFailed,
    Exercise,
    Part,
    Raises,
)
from minillm_serve.course.exercises.judging import PUBLIC_SEED, cases_of, gather, judge_part
from minillm_serve.course.exercises.notebook import OutOfTime, time_limit
from minillm_serve.course.exercises.registry import all_exercises, find, load
from minillm_serve.course.exercises.score import Score
from tests.exercises.demo import DOUBLE, EXERCISE, TRIPLE


def scored(answer: Any, part: Part = DOUBLE, exercise: Exercise = EXERCISE) -> Score:
    """What the checks of a part say of an answer."""
    found = {
        one.name: carried(gather(one.run, answer, cases_of(exercise, part, one, PUBLIC_SEED)))
        for one in part.checks
    }
    return Score.of_part(judge_part(exercise, part, PUBLIC_SEED, found))


def test_a_score_is_a_number_whose_text_nbgrader_can_read() -> None:
    score = scored(lambda x: 2 * x)
    assert (score, float(repr(score)), score.possible) == (2, 2.0, 3)


def test_each_check_has_a_tick_and_a_failed_one_its_case_and_both_values() -> None:
    assert scored(lambda x: 2 * x).text.splitlines()[:3] == [
        "ex99-double: double: 2 of 3 points",
        "✓ doubles (2 of 2)",
        "✗ refuses (0 of 1)",
    ]
    told = scored(lambda x: 7 if x == 1 else 2 * x).text
    assert "case      x=1\n    expected  2\n    got       7" in told


def test_the_page_shows_the_same_and_folds_the_hints_each_behind_the_one_before() -> None:
    page = scored(lambda x: "<b>")._repr_html_()
    assert "✗" in page
    assert "&lt;b&gt;" in page
    assert page.index("Hint 1 of 2") < page.index("Add.") < page.index("Hint 2 of 2")
    assert page.count("<details>") == page.count("</details>") == 3
    assert page.index("<details><summary>this cannot work") > page.index("&lt;b&gt;"), (
        "the first failure is open, the next ones folded"
    )
    assert "<details>" not in scored(_right)._repr_html_(), "who is done needs no hints"


def _right(x: int) -> int:
    if x < 0:
        raise ValueError("negative")
    return 2 * x


REASONS = {
    "not written yet: return twice x": NotImplementedError("return twice x"),
    "it raised KeyError: 'x'": KeyError("x"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_an_exception_is_told_in_words(reason: str) -> None:
    def answer(x: int) -> int:
        raise REASONS[reason]

    assert reason in scored(answer).text


def test_a_forgotten_return_and_a_strange_object_are_told() -> None:
    assert "is there a `return`?" in scored(lambda x: None).text
    assert "it returned a Random, which cannot be compared" in scored(random.Random).text


def test_a_refusal_must_be_of_the_right_kind_and_say_why() -> None:
    def another(x: int) -> int:
        raise TypeError("negative")

    def wordless(x: int) -> int:
        raise ValueError("no")

    assert "it raised TypeError: negative" in scored(another).text
    assert "the refusal does not say negative" in scored(wordless).text
    assert scored(_right) == 3


def test_a_judge_may_draw_what_was_read() -> None:
    def judge(case: Case, got: Any) -> None:
        drawn = BlockMap(num_blocks=3, block_size=2, allowed={1: 2}, reads=[(2, 0), (7, 1)])
        raise CheckFailed("reads block 2", index="[0]", expected=1, got=2, drawing=drawn)

    part = Part("read", "read", (Check("reads", 1, lambda rng: [{}], judge=judge),), ("a", "b"))
    score = scored(lambda: 0, part)
    assert "block   2  X." in score.text
    assert "<svg" in score._repr_html_()


# ---- In the notebook -----------------------------------------------------------------------------


def test_check_needs_the_part_only_where_there_are_several() -> None:
    exercise = load("ex01")
    assert [find(f"ex01-{part.id}")[1] for part in exercise.parts] == list(exercise.parts)
    with pytest.raises(ValueError, match=r"which part of ex01\? There are ex01-bytes, ex01-"):
        check("ex01", print)
    with pytest.raises(ValueError, match="no exercise 'ex98': there are ex"):
        check("ex98-x", print)


def test_check_and_hint_answer_in_the_notebook() -> None:
    assert check("ex01-bytes", lambda config, **kind: 0) == 0
    assert "Hint 1 of 3" in repr(hint("ex01-bytes"))
    assert 'The next one: hint("ex01-bytes", 2)' in repr(hint("ex01-bytes"))
    assert "That was the last one" in repr(hint("ex01-bytes", 3))
    with pytest.raises(ValueError, match="ex01-bytes has hints 1 to 3, not 4"):
        hint("ex01-bytes", 4)


def test_b149_exit_in_an_answer_scores_nothing_in_the_notebook_too() -> None:
    def leave(config: Any, **kind: float) -> None:
        raise SystemExit(0)

    score = check("ex01-bytes", leave)
    assert (score, "called exit" in score.text) == (0, True)


def test_hidden_checks_tell_which_and_never_why() -> None:
    score = check_hidden("ex01", {})
    assert (score, score.possible) == (0, 6)
    told = score.text + score._repr_html_()
    assert "takes head_dim from the config" in told
    for word in ("expected", "case", "N=", "got"):
        assert word not in told


def test_b149_a_loop_in_an_answer_is_stopped_in_the_notebook_even_if_it_catches() -> None:
    def forever() -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

    with pytest.raises(OutOfTime, match=r"stopped after 0\.2 s"), time_limit(0.2):
        forever()
    with time_limit(30):  # and the alarm is off again
        pass


# ---- Authors' mistakes ---------------------------------------------------------------------------


def test_an_exercise_that_makes_no_sense_is_refused_when_it_is_written() -> None:
    one = Check("a", 1, lambda rng: [], expected=lambda case: 0)
    with pytest.raises(ValueError, match="give one of expected= and judge="):
        Check("a", 1, lambda rng: [])
    with pytest.raises(ValueError, match="points=0 must be above 0"):
        Check("a", 0, lambda rng: [], expected=lambda case: 0)
    with pytest.raises(ValueError, match=r"more than one \['p: a'\]"):
        Exercise("ex99", "x", "x", "99", (Part("p", "p", (one, one), ()),))


def test_a_check_without_cases_never_passes() -> None:
    empty = Check("nothing asked", 1, lambda rng: [], expected=lambda case: Raises(ValueError))
    assert scored(_right, Part("p", "p", (empty,), ("a", "b"))) == 0


def test_the_same_seed_makes_the_same_cases_and_another_seed_others() -> None:
    for exercise in [EXERCISE, *all_exercises()]:
        for part in exercise.parts:
            made = [
                repr([cases_of(exercise, part, one, seed) for one in part.checks])
                for seed in ("one", "one", "two")
            ]
            assert made[0] == made[1]
            assert made[0] != made[2], f"{exercise.id}-{part.id} has no hidden cases of its own"
    assert cases_of(EXERCISE, TRIPLE, TRIPLE.checks[0], "one")
