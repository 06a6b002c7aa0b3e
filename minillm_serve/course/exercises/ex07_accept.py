"""ex07: the rule that accepts drafts, and loses nothing (slot `accept`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minillm_serve.course.exercises import answers_ex07 as answers
from minillm_serve.course.exercises import batches_ex07 as batches
from minillm_serve.course.exercises import cases_ex07 as cases
from minillm_serve.course.exercises import chance_ex07 as chance
from minillm_serve.course.exercises import engine_ex07 as engine
from minillm_serve.course.exercises import steps_ex07 as steps
from minillm_serve.course.exercises import tokens_ex07 as tokens
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Limits, Part

Maker = Callable[[random.Random], Sequence[Case]]


def _overlapped(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        expected=answers.overlap,
        atol=answers.TOLERANCE,
        explain=answers.overlap_mistake,
        describe=cases.described_pair,
    )


def _lacking(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        expected=answers.residual,
        atol=answers.TOLERANCE,
        explain=answers.residual_mistake,
        describe=cases.described_pair,
    )


def _picked(name: str, made: Maker) -> Check:
    return Check(name, 1, made, judge=answers.judge_picks, describe=cases.described_picks)


def _counted(name: str, points: float, made: Maker) -> Check:
    return Check(name, points, made, judge=tokens.judge_counts, describe=batches.described)


def _accepted(name: str, points: float, made: Maker) -> Check:
    return Check(
        name,
        points,
        made,
        run=tokens.run,
        judge=tokens.judge_tokens,
        describe=batches.described,
    )


OVERLAP = Part(
    id="overlap",
    answer="overlap",
    checks=(
        _overlapped("adds up what p and q have in common", cases.overlap_cases),
        _overlapped("holds where one of them is certain", cases.certain_cases),
    ),
    hints=(
        "Token x is drafted with probability q(x), and then kept with probability "
        "min(1, p(x) / q(x)). How likely is it that both happen? Then add up all tokens.",
        "q(x) min(1, p(x) / q(x)) is min(q(x), p(x)). No division is left: torch.minimum(p, q), "
        "summed over the last dimension.",
    ),
)

RESIDUAL = Part(
    id="residual",
    answer="residual",
    checks=(
        _lacking("gives out what p has more than q, and sums to 1", cases.residual_cases),
        _lacking("holds for greedy rows and certain drafts", cases.sure_cases),
        _lacking("is p where nothing is lacking", cases.equal_cases),
    ),
    hints=(
        "Look at the picture: what is above both curves' common part, and belongs to p? Where q is "
        "higher, that is nothing, not less than nothing.",
        "rest = (p - q).clamp(min=0), and its sum over the last dimension with keepdim=True, so "
        "that each row is divided by its own.",
        "torch.where(total > 0, rest / total, p): what is computed in vain, 0 / 0, is then not "
        "taken. A small number added to the sum would be wrong where the sum is small, too.",
    ),
)

PICK = Part(
    id="pick",
    answer="pick",
    checks=(
        _picked("goes to the first token whose running sum exceeds the draw", cases.grid_cases),
        _picked("goes by each row's own weights", cases.own_weights_cases),
        _picked("never takes a token of weight 0, be the draw 0 or nearly 1", cases.zero_cases),
    ),
    hints=(
        "Put the weights side by side on a line from 0 to 1: the draw is a point on it. In which "
        "weight does it lie? weights.cumsum(-1) says where each of them ends.",
        "torch.searchsorted(running, draws[:, None], right=True) finds the first end that exceeds "
        "the draw. Without right=True, the first that is as large: a weight of 0 may end there.",
        "In float32, 1 - 2**-53 is 1, and many small weights do not quite sum to 1. So: "
        "running = weights.double().cumsum(-1), and look for draws[:, None] * running[:, -1:].",
    ),
)

KEPT = Part(
    id="kept",
    answer="kept",
    checks=(
        _counted("keeps a draft as often as p / q says", 2, steps.threshold_cases),
        _counted("keeps what is certain, and nothing that p never says", 1, steps.edge_cases),
        _counted("stops at the first that fails", 1, steps.prefix_cases),
        _counted("goes by each sequence's own length", 1, steps.length_cases),
    ),
    hints=(
        "Begin with two loops, over s and over range(lengths[s]), and stop the inner one at the "
        "first draft that fails. What is p[s, i, drafts[s, i]]?",
        "draw < p / q is the same as draw * q < p, and that is right for q = 0 and p = 0 as well. "
        "(min(1, ...) is not needed: no draw is above 1.)",
        "Without loops: p[:, :-1].gather(2, index) takes one number of each row, with index = "
        "drafts[..., None]. But an index must exist: put 0 in the place of drafts that do not "
        "count.",
        "inside = torch.arange(K) < lengths[:, None] says which drafts count. From there on "
        "(inside & passed).long().cumprod(1) is 1 up to the first that fails, and 0 behind it.",
    ),
)

ACCEPT = Part(
    id="accept",
    answer="accept",
    checks=(
        _accepted("gives greedy requests the model's own tokens", 1, steps.greedy_cases),
        _accepted("repairs a rejection by what p has more than q", 2, steps.repair_cases),
        _accepted("adds a token when all drafts are kept", 1, steps.bonus_cases),
        _accepted("does all of it side by side, whatever lies beyond", 2, steps.mixed_cases),
        Check(
            "gives 50,000 sequences tokens that are distributed as p",
            2,
            chance.share_cases,
            run=chance.run,
            judge=chance.judge_shares,
            describe=chance.described,
        ),
        Check(
            "serves a tiny model in the engine, and saves as many steps as ours",
            2,
            engine.service_cases,
            run=engine.serve,
            judge=engine.judge_service,
            describe=engine.described,
        ),
    ),
    hints=(
        "n = kept(...) says where the one more token goes: at place n of its row. It is picked "
        "from p[s, n] if n is lengths[s], else from residual(p[s, n], q[s, n]); by draws[s, n, 1].",
        "rows = torch.arange(S); then p[rows, n] is [S, V], one row for each sequence, and "
        "draws[rows, n, 1] is [S].",
        "refused = n < lengths. For those, weights[refused] = residual(weights[refused], "
        "q[refused, n[refused]]): q[s, n] does not exist where all K are kept.",
        "token_ids = torch.full((S, K + 1), PADDING); then token_ids[:, :K] = drafts.where("
        "torch.arange(K) < n[:, None], PADDING), and token_ids[rows, n] = pick(...).",
    ),
)

EXERCISE = Exercise(
    id="ex07",
    name="accept",
    title="Guess, check, and lose nothing",
    chapter="07",
    parts=(OVERLAP, RESIDUAL, PICK, KEPT, ACCEPT),
    slot="accept",
    hidden_points=8,
    limits=Limits(seconds=90),
)
