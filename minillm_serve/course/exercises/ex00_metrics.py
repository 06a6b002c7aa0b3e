"""ex00: TTFT, TPOT, throughput and goodput from a log of tokens; the rate that saturates."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minillm_serve.course.exercises import answers_ex00 as answers
from minillm_serve.course.exercises import cases_ex00 as cases
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Part, call

Made = Callable[[random.Random], list[Case]]


def run_ttft(answer: Any, case: Case) -> Any:
    """One entry of what the answer returns."""
    return answer(**case)["ttft"]


def run_tpot(answer: Any, case: Case) -> Any:
    """One entry of what the answer returns."""
    return answer(**case)["tpot"]


def run_e2e(answer: Any, case: Case) -> Any:
    """One entry of what the answer returns."""
    return answer(**case)["e2e"]


def run_throughput(answer: Any, case: Case) -> Any:
    """One entry of what the answer returns."""
    return answer(**case)["throughput"]


def _check(
    name: str,
    made: Made,
    expected: Callable[[Case], Any],
    mistakes: answers.Mistakes,
    run: Callable[[Any, Case], Any] = call,
) -> Check:
    return Check(
        name,
        1,
        made,
        run=run,
        expected=expected,
        explain=answers.mistaken(mistakes),
        describe=cases.described,
        rtol=1e-9,
    )


def _of_request(key: str) -> Callable[[Case], Any]:
    return lambda case: getattr(answers.request(case), key)


def _of_log(key: str) -> Callable[[Case], Any]:
    return lambda case: answers.summary(case, key)


def _nothing(case: Case) -> dict[str, float | None]:
    return {}


REQUEST = Part(
    id="request",
    answer="request_metrics",
    checks=(
        _check(
            "TTFT counts from the arrival",
            cases.request_cases,
            _of_request("ttft"),
            answers.ttft_mistakes,
            run_ttft,
        ),
        _check(
            "TPOT is the mean of the gaps",
            cases.request_cases,
            _of_request("tpot"),
            answers.tpot_mistakes,
            run_tpot,
        ),
        _check(
            "E2E reaches to the last token",
            cases.request_cases,
            _of_request("e2e"),
            _nothing,
            run_e2e,
        ),
        _check(
            "a single token has no TPOT",
            cases.single_cases,
            _of_request("tpot"),
            answers.single_mistakes,
            run_tpot,
        ),
    ),
    hints=(
        "Draw a line, mark the arrival and the tokens on it, and put your three times above it.",
        "Between four tokens there are three gaps. And between one?",
        "ttft = times[0] - arrival; tpot = (times[-1] - times[0]) / (len(times) - 1), or None; "
        "e2e = times[-1] - arrival.",
    ),
)

SUMMARY = Part(
    id="summary",
    answer="summary",
    checks=(
        _check(
            "throughput is over the makespan",
            cases.summary_cases,
            _of_log("throughput"),
            answers.throughput_mistakes,
            run_throughput,
        ),
        _check(
            "a log may be in any order",
            cases.disordered_cases,
            _of_log("throughput"),
            answers.throughput_mistakes,
            run_throughput,
        ),
        _check(
            "TTFT is a percentile",
            cases.summary_cases,
            _of_log("ttft"),
            answers.percentile_mistakes("ttft"),
            run_ttft,
        ),
        _check(
            "TPOT leaves out requests that have none",
            cases.tpot_cases,
            _of_log("tpot"),
            answers.percentile_mistakes("tpot"),
            run_tpot,
        ),
        _check(
            "without any gap there is no TPOT to report",
            cases.gapless_cases,
            _of_log("tpot"),
            answers.percentile_mistakes("tpot"),
            run_tpot,
        ),
    ),
    hints=(
        "Your request_metrics does most of it: call it for every entry of the log.",
        "The makespan is from the earliest arrival to the latest token, wherever in the log they "
        "stand: min(...) and max(...).",
        "numpy.percentile(values, q) interpolates as asked for. Leave out the TPOTs that are None, "
        "and return None if nothing remains.",
    ),
)

GOODPUT = Part(
    id="goodput",
    answer="goodput",
    checks=(
        _check(
            "counts who kept both promises, per second",
            cases.promise_cases,
            answers.goodput,
            answers.goodput_mistakes,
        ),
        _check(
            "a single token cannot miss the second promise",
            cases.single_promise_cases,
            answers.goodput,
            answers.goodput_mistakes,
        ),
        _check(
            "a promise that is met exactly is kept",
            cases.exact_promise_cases,
            answers.goodput,
            answers.goodput_mistakes,
        ),
    ),
    hints=(
        "Throughput with a condition: which requests count, and what are they divided by?",
        "A request counts if ttft <= max_ttft, and if it has a tpot, tpot <= max_tpot.",
        "Divide the count by the same makespan as in part 2: those who were served too late "
        "took their time too.",
    ),
)

SATURATION = Part(
    id="saturation",
    answer="saturation_rate",
    checks=(
        _check(
            "a step gives a token to each of the batch",
            cases.server_cases,
            answers.saturation,
            answers.saturation_mistakes,
        ),
        _check(
            "prompts take their time, alone",
            cases.prompt_cases,
            answers.saturation,
            answers.saturation_mistakes,
        ),
    ),
    hints=(
        "How many seconds of the server does one average request cost, if the batch is full?",
        "A request of n tokens takes part in n steps, but it shares each of them with the batch: "
        "it costs n * step_time / batch seconds.",
        "1 / (prefill_time + mean(output_lens) * step_time / batch)",
    ),
)

EXERCISE = Exercise(
    id="ex00",
    name="metrics",
    title="What serving is judged by",
    chapter="00",
    parts=(REQUEST, SUMMARY, GOODPUT, SATURATION),
    hidden_points=7,
)
