"""ex09's judge: right plans of any case pass, and what it asks for can be found."""

import random
from typing import Any

import pytest

from minillm_serve.course.exercises import answers_ex09 as answers
from minillm_serve.course.exercises import cases_ex09 as cases
from minillm_serve.course.exercises import picture_ex09 as picture
from minillm_serve.course.exercises import plans_ex09 as plans
from minillm_serve.course.exercises.exercise import CheckFailed


def refusal(judge: Any, case: Any, got: Any) -> str:
    with pytest.raises(CheckFailed) as failed:
        judge(case, got)
    return failed.value.message


@pytest.mark.parametrize("seed", range(4))
def test_the_right_batch_is_what_trying_all_of_them_finds(seed: int) -> None:
    rng = random.Random(seed)
    for made in (cases.largest_cases, cases.exact_cases, cases.border_cases):
        for case in made(rng):
            stairs = answers.Stairs(case["fixed"], case["rise"], case["group"], case["most"])
            fitting = [b for b in range(1, case["most"] + 1) if stairs(b) <= case["promise"]]
            assert answers.largest(case) == max(fitting, default=0)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_known_plan_of_any_case_is_accepted(seed: int) -> None:
    case = plans.promised_cases(random.Random(f"any/{seed}"))[0]
    goodput, batch, budget = plans.best_known(case)
    assert goodput > 0
    plans.judge_plan(case, [batch, budget])


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (None, "give two numbers"),
        ([8], "give two numbers"),
        ([8.0, 512], "max_num_seqs is a whole number"),
        ([True, 512], "max_num_seqs is a whole number"),
        ([0, 512], "nobody is served"),
        ([64, 64], "beside 64 who type a prompt must get a token"),
        ([64, 10**6], "no step computes more than 4096"),
    ],
    ids=str,
)
def test_a_plan_that_is_none_is_told_so(plan: Any, said: str) -> None:
    assert said in refusal(plans.judge_plan, picture.example(), plan)


def test_evidence_that_is_not_the_notes_taken_is_refused() -> None:
    case = cases.largest_cases(random.Random(0))[0]
    for forged in (None, 7, {"found": answers.largest(case)}):
        assert "not the ones that were noted" in refusal(answers.judge_largest, case, forged)


def test_a_loop_without_an_end_is_stopped() -> None:
    def ask_for_ever(step_time: Any, promise: float, most: int) -> int:
        while True:
            step_time(1)

    with pytest.raises(RuntimeError, match="5,000 times"):
        answers.run_largest(ask_for_ever, cases.largest_cases(random.Random(0))[0])


def test_the_picture_shows_the_plan_among_others() -> None:
    case = picture.example()
    _, batch, budget = plans.best_known(case)
    figure = picture.goodput_picture(lambda **_: (batch, budget), case)
    assert figure.axes[0].get_title(loc="left").startswith(f"Your batch is {batch}; ")
