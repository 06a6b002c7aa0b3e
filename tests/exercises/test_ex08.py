"""ex08's judges: what is right passes, and every slip is told what it is."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minillm_serve.course.exercises import answers_ex08 as answers
from minillm_serve.course.exercises import blocks_ex08 as blocks
from minillm_serve.course.exercises import cases_ex08 as cases
from minillm_serve.course.exercises import engine_ex08 as engine
from minillm_serve.course.exercises import trips_ex08 as trips
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.ex08_kv_quantizer import EXERCISE
from minillm_serve.course.exercises.exercise import Check, CheckFailed
from minillm_serve.course.exercises.judging import cases_of, gather, judge_part
from minillm_serve.course.exercises.picture_ex08 import LARGE, SMALL, predict_first, row_picture
from minillm_serve.course.exercises.program import grading_of, source_of
from minillm_serve.course.exercises.score import Score
from minillm_serve.runtime.kv_quantizer import Int8Quantizer
from tests.exercises.class_room import reason_of, solution

SLIPS = sorted((Path(__file__).parent / "slips" / "ex08").glob("*.py"))


def reference() -> dict[str, Any]:
    """The names that the solution's cells bind."""
    bound: dict[str, Any] = {"torch": torch}
    for cell in solution(EXERCISE)["cells"]:
        if grading_of(cell).get("grade_id", "").endswith("-answer"):
            exec(source_of(cell), bound)
    return bound


@pytest.mark.parametrize("slip", SLIPS, ids=lambda path: path.stem)
def test_every_slip_is_told_what_it_is(slip: Path) -> None:
    """B124, B127: the scale of zeros, of tiny rows, in float16; scales left behind."""
    bound = reference()
    exec(slip.read_text("utf-8"), bound)
    shown = []
    for part in EXERCISE.parts:
        answer, found = bound[part.answer], {}
        for check in part.checks:
            if check.run is not engine.serve:
                made = cases_of(EXERCISE, part, check, "slips")
                found[check.name] = list(map(carried, gather(check.run, answer, made)))
        shown.append(Score.of_part(judge_part(EXERCISE, part, "slips", found)).text)
    assert reason_of(slip) in "\n".join(shown)


@pytest.mark.parametrize("seed", range(8))
def test_no_number_lies_where_rounding_could_decide(seed: int) -> None:
    for case in (
        *cases.code_cases(random.Random(seed)),
        *cases.zero_code_cases(random.Random(seed)),
    ):
        beyond = np.abs(answers.steps_of(case)) % 1
        assert np.abs(beyond - 0.5).min() > 0.01


QUANTIZER = [check for check in EXERCISE.part("quantizer").checks if check.run is not engine.serve]


@pytest.mark.parametrize("check", QUANTIZER, ids=lambda check: check.name)
def test_the_engines_own_quantizer_passes(check: Check) -> None:
    assert check.judge is not None
    for seed in range(2):
        for case in check.cases(random.Random(seed)):
            check.judge(case, carried(check.run(Int8Quantizer, case)))


def test_another_way_of_rounding_halves_is_right_as_well() -> None:
    """Ties may go either way: nothing in the exercise lies on one."""

    def half_up(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        steps = torch.where(scales > 0, scales, 1)[..., None]
        return (x.float() / steps + 0.5).floor().to(torch.int8)

    assert half_up(torch.tensor([[0.5, -0.5]]), torch.ones(1)).tolist() == [[1, 0]]
    judged = 0
    for case in cases.code_cases(random.Random(0)):
        answers.judge_codes(case, carried(answers.run_codes(half_up, case)))  # or raises
        judged += 1
    assert judged >= 3


def test_b127_the_engine_is_asked_about_its_own_int8_cache() -> None:
    (case,) = cases.service_cases(random.Random(0))
    right = engine.serve(Int8Quantizer, case)
    engine.judge_service(case, right)
    with pytest.raises(CheckFailed, match="request 1 is answered otherwise"):
        engine.judge_service(case, [right[0], right[1][::-1], right[2]])


def test_evidence_that_was_made_up_is_no_answer() -> None:
    rng = random.Random(0)
    judged: list[tuple[Any, Any]] = [
        (answers.judge_scales, cases.scale_cases(rng)[0]),
        (answers.judge_codes, cases.code_cases(rng)[0]),
        (answers.judge_numbers, cases.number_cases(rng)[0]),
        (blocks.judge_copy, cases.copy_cases(rng)[0]),
        (trips.judge_trip, cases.row_cases(rng)[0]),
        (trips.judge_bias, cases.bias_cases(rng)[0]),
        (trips.judge_company, cases.company_cases(rng)[0]),
        (engine.judge_service, cases.service_cases(rng)[0]),
    ]
    made_up: list[Any] = [None, [], 7, {}, {"codes": 1}, {"after": 2}, {"dtype": "torch.int8"}]
    for judge, case in judged:
        for forged in made_up:
            with pytest.raises(CheckFailed):
                judge(case, forged)


def test_the_prediction_is_what_one_scale_for_both_gives() -> None:
    """And with a scale of its own the small token loses little."""
    (question,) = predict_first().questions
    step = max(map(abs, LARGE)) / 127
    left = [round(x / step) * step for x in SMALL]
    assert question.choices[question.answer] == f"[{left[0]:.2g}, 0, 0, 0]"
    assert left[1:] == [0, 0, 0]
    codes, scales = Int8Quantizer().quantize(torch.tensor([[SMALL]]))
    back = Int8Quantizer().dequantize(codes, scales)
    assert (back - torch.tensor(SMALL)).abs().max() < 2e-4


@cache
def titles() -> list[str]:
    return [axes.get_title(loc="left") for axes in row_picture(Int8Quantizer(), LARGE).axes]


def test_the_picture_shows_the_step_and_its_errors() -> None:
    assert titles() == ["Codes: a step is 0.05", "Off by half a step at most"]
