"""ex09: a solver for promises: step time, largest batch, Little's batch, and a plan."""

from __future__ import annotations

from minillm_serve.course.exercises import answers_ex09 as answers
from minillm_serve.course.exercises import cases_ex09 as cases
from minillm_serve.course.exercises import plans_ex09 as plans
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Limits, Part, Raises


def _step(case: Case) -> float:
    return answers.step_time(**case)


def _settled(case: Case) -> float | None:
    return answers.settles_at(**case)


def _refused_tpot(case: Case) -> Raises:
    return Raises(ValueError, ("tpot",))


def _refused_gap(case: Case) -> Raises:
    return Raises(ValueError, ("gap",))


def _unrefused(case: Case, expected: object, got: object) -> str:
    return "it plans what cannot be kept: somebody will be told that it can"


STEP = Part(
    id="step",
    answer="step_time",
    checks=(
        Check(
            "moves the weights once and every cache",
            1,
            cases.memory_cases,
            expected=_step,
            rtol=answers.TOLERANCE,
            explain=answers.mistaken(answers.step_mistakes),
        ),
        Check(
            "waits for the arithmetic where that is slower",
            1,
            cases.compute_cases,
            expected=_step,
            rtol=answers.TOLERANCE,
            explain=answers.mistaken(answers.step_mistakes),
        ),
    ),
    hints=(
        "Two times: one for bytes over bandwidth, one for FLOPs over the peak. Hardware does both "
        "at once. When is the step over?",
        "Bytes: the weights, and for each of the batch a cache of `context` tokens of `kv` bytes. "
        "FLOPs: `flops` for each row, and there is a row for each of the batch.",
        "max((weights + batch * context * kv) / bandwidth, batch * flops / peak)",
    ),
)

LARGEST = Part(
    id="largest",
    answer="largest_batch",
    checks=tuple(
        Check(
            name,
            1,
            made,
            run=answers.run_largest,
            judge=answers.judge_largest,
            describe=cases.described_stairs,
        )
        for name, made in (
            ("finds the last batch that is in time", cases.largest_cases),
            ("takes a promise that is met exactly as kept", cases.exact_cases),
            ("knows what to say if nobody is in time, or everybody", cases.border_cases),
            ("asks few questions", cases.wide_cases),
        )
    ),
    hints=(
        "A step never gets shorter with more people in it. So what does one question about the "
        "middle tell you about one half of all batches?",
        "Keep two numbers: `good`, a batch that is known to be in time (0 to begin with), and "
        "`bad`, one that is known not to be (most + 1, which nobody asks about). Until they are "
        "neighbours, ask for the middle and move one of them there.",
        "while bad - good > 1: middle = (good + bad) // 2; if step_time(middle) <= promise: "
        "good = middle, else bad = middle. Then return good.",
    ),
)

SETTLES = Part(
    id="settles",
    answer="settles_at",
    checks=(
        Check(
            "finds the batch that a crowd makes by itself",
            2,
            cases.crowd_cases,
            expected=_settled,
            rtol=answers.TOLERANCE,
            explain=answers.mistaken(answers.settle_mistakes),
        ),
        Check(
            "says None where it grows for ever",
            1,
            cases.flood_cases,
            expected=_settled,
            rtol=answers.TOLERANCE,
            explain=answers.mistaken(answers.settle_mistakes),
        ),
    ),
    hints=(
        "Little: as many are inside as come a second, times the seconds that each stays. Each "
        "stays for `output` steps, and a step takes fixed + each * B.",
        "B = rate * output * (fixed + each * B). B is on both sides: bring it to one.",
        "B = rate * output * fixed / (1 - rate * output * each). What does it mean if the "
        "denominator is 0 or less?",
    ),
)

PLAN = Part(
    id="plan",
    answer="plan",
    checks=(
        Check(
            "serves as many as promised as the best plans do, and nobody's typing stops",
            4,
            plans.promised_cases,
            judge=plans.judge_plan,
            describe=plans.described,
        ),
        Check(
            "refuses a promise of ms a token that nobody can keep",
            1,
            plans.slow_cases,
            expected=_refused_tpot,
            explain=_unrefused,
            describe=plans.described,
        ),
        Check(
            "refuses a gap that no budget keeps",
            1,
            plans.jerky_cases,
            expected=_refused_gap,
            explain=_unrefused,
            describe=plans.described,
        ),
    ),
    hints=(
        "Batch first: the mean step of a full server, mean_step(cost, traffic), is a line, and "
        "your largest_batch takes any function: line.seconds will do. But does the mean person's "
        "wait have to be the promise, or a little less?",
        "Then the budget: full_step(cost, traffic, batch, budget) never gets shorter with a larger "
        "budget. So largest_batch finds it as well, if you hand it a function of the tokens that "
        "prompts get, budget - batch.",
        "keep = 0.95; batch = largest_batch(line.seconds, keep * slo.tpot, 4095); if that is 0, "
        'raise ValueError(f"tpot ...").',
        "more = largest_batch(lambda more: full_step(cost, traffic, batch, batch + more), "
        'keep * gap, 4096 - batch); if that is 0, raise ValueError(f"gap ..."); '
        "return batch, batch + more.",
    ),
)

EXERCISE = Exercise(
    id="ex09",
    name="slo_solver",
    title="Keep what you promise",
    chapter="09",
    parts=(STEP, LARGEST, SETTLES, PLAN),
    hidden_points=8,
    limits=Limits(seconds=60),
)
