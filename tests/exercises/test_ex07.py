"""ex07's judges: what they expect is right, and what they say about a wrong answer is so."""

import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from minillm_serve.course.exercises import answers_ex07 as answers
from minillm_serve.course.exercises import cases_ex07 as cases
from minillm_serve.course.exercises import chance_ex07 as chance
from minillm_serve.course.exercises import engine_ex07 as engine
from minillm_serve.course.exercises import mistakes_ex07 as mistakes
from minillm_serve.course.exercises import rules_ex07 as rules
from minillm_serve.course.exercises import steps_ex07 as steps
from minillm_serve.course.exercises import tokens_ex07 as tokens
from minillm_serve.course.exercises.batches_ex07 import is_clear
from minillm_serve.course.exercises.drawn_ex07 import DraftTable, Shares
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.ex07_accept import EXERCISE
from minillm_serve.course.exercises.exercise import Case, Check, CheckFailed
from minillm_serve.course.exercises.picture_ex07 import P, Q, overlap_picture, predict_first
from minillm_serve.runtime.sampling.inversion import invert
from minillm_serve.runtime.spec.accept import PADDING, Accepted, accept

KEPT, ACCEPT = EXERCISE.part("kept").checks, EXERCISE.part("accept").checks
STEPS = [check for check in (*KEPT, *ACCEPT) if check.cases.__module__ == steps.__name__]


@cache
def made(check: Check, seeds: int) -> list[Case]:
    return [case for seed in range(seeds) for case in check.cases(random.Random(seed))]


def as_case(rows: list[Any], found: list[tuple[int, list[int]]]) -> dict[str, Any]:
    """Counts and tokens as evidence has them."""
    width = len(rows[0].drafts)
    ids = [token_ids + [PADDING] * (width + 1 - len(token_ids)) for _, token_ids in found]
    return {"counts": np.array([n for n, _ in found]), "token_ids": np.array(ids)}


@pytest.mark.parametrize("check", KEPT, ids=lambda check: check.name)
def test_the_engines_own_counts_pass(check: Check) -> None:
    """B59, B63, B64."""
    for case in made(check, 3):
        tokens.judge_counts(case, carried(accept(**case).counts))


@pytest.mark.parametrize("check", ACCEPT, ids=lambda check: check.name)
def test_the_engines_own_rule_passes(check: Check) -> None:
    """B56, B59, B63, B64."""
    assert check.judge is not None
    for case in made(check, 2):
        check.judge(case, carried(check.run(accept, case)))


def test_the_engines_own_inversion_passes() -> None:
    for check in EXERCISE.part("pick").checks:
        for case in made(check, 3):
            answers.judge_picks(case, carried(invert(**case)))


@pytest.mark.parametrize("check", STEPS, ids=lambda check: check.name)
def test_no_draw_lies_where_rounding_could_decide(check: Check) -> None:
    """But for the greedy and the certain, which no rounding touches."""
    if check.cases not in (steps.edge_cases, steps.greedy_cases, steps.threshold_cases):
        assert all(is_clear(case) for case in made(check, 2))


def test_b59_what_is_kept_and_what_is_picked_anew_add_up_to_p() -> None:
    rng = random.Random(0)
    p, q = (np.array([cases.spread(rng, 6) for _ in range(20)]) for _ in "pq")
    case = {"p": torch.tensor(p), "q": torch.tensor(q)}
    kept, rest = answers.overlap(case), answers.residual(case)
    np.testing.assert_allclose(np.minimum(p, q) + (1 - kept)[:, None] * rest, p, atol=1e-5)


def said_of(judge: Any, check: Check, evidence: Any) -> set[str]:
    """What is said of a wrong rule, in all cases of a check."""
    heard = set()
    for case in made(check, 2):
        rows = rules.rows_of(case)
        try:
            judge(case, evidence(rows))
        except CheckFailed as failure:
            heard.add(failure.message)
    return heard


@pytest.mark.parametrize("name", mistakes.COUNTS)
def test_every_wrong_count_is_named(name: str) -> None:
    said, rule = mistakes.COUNTS[name]
    heard = {
        one
        for check in KEPT
        for one in said_of(
            tokens.judge_counts, check, lambda rows: np.array([rule(row) for row in rows])
        )
    }
    assert said in heard


@pytest.mark.parametrize("name", [name for name in mistakes.TOKENS if name not in mistakes.COUNTS])
def test_every_wrong_token_is_named(name: str) -> None:
    said, rule = mistakes.TOKENS[name]
    heard = {
        one
        for check in ACCEPT[1:3]
        for one in said_of(
            tokens.judge_tokens, check, lambda rows: as_case(rows, [rule(row) for row in rows])
        )
    }
    assert said in heard


def doctored(change: Any) -> Any:
    """Our rule, and a lie about what comes out."""

    def rule(**case: Tensor) -> Any:
        return change(*accept(**case))

    return rule


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ids, counts: None, "is there a `return`"),
        (lambda ids, counts: [ids, counts], re.escape(tokens.SHAPE)),
        (lambda ids, counts: Accepted(ids, counts.tolist()), "returned a list"),
        (lambda ids, counts: Accepted(ids, counts.float()), "the dtype of the counts"),
        (lambda ids, counts: Accepted(ids, counts[:1]), "the shape of the counts"),
        (lambda ids, counts: Accepted(ids.float(), counts), "no tensor of int64"),
        (lambda ids, counts: Accepted(ids[:, :-1], counts), r"\[S, K \+ 1\]"),
        (lambda ids, counts: Accepted(ids.where(ids != PADDING, 0), counts), "0 is a token"),
        (lambda ids, counts: Accepted(ids.where(ids != PADDING, 1), counts), "a second token"),
        (lambda ids, counts: Accepted(ids, counts + 1), "and counts says"),
        (lambda ids, counts: Accepted(ids.roll(1, 1), counts), "sequence"),
    ],
)
def test_what_is_no_answer_is_told_apart(change: Any, reason: str) -> None:
    case = steps.mixed_cases(random.Random(0))[1]
    with pytest.raises(CheckFailed, match=reason):
        tokens.judge_tokens(case, carried(tokens.run(doctored(change), case)))


def test_evidence_that_was_made_up_is_no_answer() -> None:
    case, batch = steps.mixed_cases(random.Random(0))[0], engine.service_cases(random.Random(0))[0]
    made_up: list[Any] = [None, [], 7, {}, [1, 2], {"counts": 1, "token_ids": 2}, {"written": 3}]
    for forged in made_up:
        for judge in (tokens.judge_counts, tokens.judge_tokens):
            with pytest.raises(CheckFailed):
                judge(case, forged)
        with pytest.raises(CheckFailed):
            chance.judge_shares(chance.share_cases(random.Random(0))[0], forged)
        with pytest.raises(CheckFailed):
            engine.judge_service(batch, forged)


def test_b59_a_rule_that_keeps_a_twentieth_too_much_is_found_by_the_shares() -> None:
    """No single token is impossible: only their shares tell."""
    (case,) = chance.share_cases(random.Random(1))

    def lenient(*step: Tensor) -> Accepted:
        p, q, drafts, lengths, draws = step
        return accept(p, q, drafts, lengths, draws * torch.tensor([0.95, 1.0]).double())

    with pytest.raises(CheckFailed, match="would not give once in ten million") as failure:
        chance.judge_shares(case, carried(chance.run(lenient, case)))
    assert isinstance(failure.value.drawing, Shares)


def test_b61_the_engines_cases_keep_drafts_and_refuse_some() -> None:
    for seed in range(4):
        (case,) = engine.service_cases(random.Random(seed))
        served = engine.serve(accept, case)
        assert 0 < served["kept"] < served["drafts"]


def test_a_rule_that_keeps_nothing_is_right_in_the_engine_and_gains_nothing() -> None:
    def never(p: Tensor, q: Tensor, drafts: Tensor, lengths: Tensor, draws: Tensor) -> Accepted:
        none = torch.zeros_like(lengths)
        ids = torch.full((len(p), p.shape[1]), PADDING)
        ids[:, 0] = invert(p[:, 0], draws[:, 0, 1])
        return Accepted(ids, none)

    (case,) = engine.service_cases(random.Random(0))
    greedy = {**case, "temperatures": [0] * len(case["prompts"])}
    with pytest.raises(CheckFailed, match="each draft that is kept saves one"):
        engine.judge_service(greedy, carried(engine.serve(never, greedy)))


def test_a_table_shows_what_became_of_each_draft() -> None:
    row = rules.Row(
        p=np.array([[0.5, 0.5], [0.1, 0.9], [0.5, 0.5], [1.0, 0.0]]),
        q=np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]),
        drafts=[0, 0, 1],
        length=3,
        draws=np.array([[0.2, 0.5], [0.99999, 0.5], [0.1, 0.5], [0.1, 0.5]]),
    )
    lines = [line.split() for line in DraftTable(row).text().splitlines()]
    assert lines[-2] == ["draw", "0.200", "<", "1", "0.100"]
    assert lines[-1] == ["kept", "yes", "no", "-"]
    assert "0.500" in DraftTable(row).html()
    assert "no drafts" in DraftTable(row._replace(length=0)).text()


def test_shares_and_the_picture_show_p_and_q() -> None:
    shares = chance.come_out(accept, P, Q, size=4000)
    assert "of them kept" in repr(shares)
    assert abs(shares.columns["came"][2] - 0.2) < 0.03
    assert "came 0." in shares.html()
    (axes,) = overlap_picture(P, Q).axes
    assert axes.get_title(loc="left").endswith("0.30")
    assert len(axes.patches) == 4 * 3


def test_the_prediction_is_what_the_rule_gives() -> None:
    (question,) = predict_first().questions
    right = 100 * answers.overlap(cases.pair((P, Q)))[0]
    assert question.choices[question.answer] == f"{right:.0f}"
