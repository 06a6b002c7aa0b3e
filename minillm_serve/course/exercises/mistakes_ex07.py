"""What may be misunderstood of ex07's rule, and what comes out then.

Every mistake is a function like the right one. So a wrong answer is compared with all of them, and
the one that gives the very same is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from minillm_serve.course.exercises.rules_ex07 import (
    Count,
    Draw,
    Outcome,
    Row,
    Vector,
    Weights,
    lacking,
    outcome,
    passes,
    prefix,
    right_count,
    right_draw,
    right_weights,
)

#: Of so few sequences, several mistakes may make the same by chance.
FEW = 4


class Mistake(NamedTuple):
    """A misunderstanding.

    Attributes:
        said: to whoever has it.
        rule: what comes of it.
    """

    said: str
    rule: Callable[[Row], object]


def _p(row: Row, i: int) -> float:
    return float(row.p[i, row.drafts[i]])


def _q(row: Row, i: int) -> float:
    return float(row.q[i, row.drafts[i]])


def _beyond(row: Row) -> int:
    return right_count(row._replace(length=len(row.drafts)))


def _row_behind(row: Row, i: int) -> bool:
    return bool(row.draws[i, 0] * _q(row, i) < row.p[i + 1, row.drafts[i]])


#: Of counts. The plainest first: where several say the same, it is the one.
_COUNTS: dict[str, tuple[str, Count]] = {
    "untested": (
        "it keeps whatever was drafted, without a test",
        lambda row: row.length,
    ),
    "never": (
        "it never keeps a draft",
        lambda row: 0,
    ),
    "by_q": (
        "it keeps a draft if the draw is below q(d): the surer the drafter is, the more often it "
        "is believed, whatever the model says. The draw has to be below p(d) / q(d)",
        prefix(lambda row, i: row.draws[i, 0] < _q(row, i)),
    ),
    "by_p": (
        "it keeps a draft if the draw is below p(d). But d has been drawn already, with "
        "probability q(d), so that it would come out in q(d) p(d) of all cases: divide by q(d)",
        prefix(lambda row, i: row.draws[i, 0] < _p(row, i)),
    ),
    "upside_down": (
        "it has p and q the wrong way round: it keeps a draft if the draw is below q(d) / p(d)",
        prefix(lambda row, i: row.draws[i, 0] * _p(row, i) < _q(row, i)),
    ),
    "p_above_q": (
        "it keeps a draft only where p(d) >= q(d). One that the drafter likes too much is kept, "
        "too, in p(d) / q(d) of all cases",
        prefix(lambda row, i: _p(row, i) >= _q(row, i)),
    ),
    "likeliest": (
        "it keeps a draft only if it is what the model likes best. That is right for a greedy "
        "request, and for no other",
        prefix(lambda row, i: int(row.p[i].argmax()) == row.drafts[i]),
    ),
    "all_that_pass": (
        "it keeps drafts behind one that was not kept. They were made to follow a token that is "
        "not in the text: only those before the first that fails count",
        lambda row: sum(passes(row, i) for i in range(row.length)),
    ),
    "row_behind": (
        "it tests draft i against p[s, i + 1], which says what follows draft i. What should stand "
        "in the place of draft i itself is p[s, i]",
        prefix(_row_behind),
    ),
    "pick_draw": (
        "it tests draft i by draws[s, i, 1], the number that picks: the test is draws[s, i, 0]",
        prefix(lambda row, i: row.draws[i, 1] * _q(row, i) < _p(row, i)),
    ),
    "beyond": (
        "it looks at what lies beyond the drafts of a sequence: the first lengths[s] of drafts[s] "
        "count",
        _beyond,
    ),
    "not_below": (
        "it keeps a draft that the model would never say: p(d) is 0, and a draw of 0 is not below "
        "0 (< is not <=)",
        prefix(lambda row, i: row.draws[i, 0] * _q(row, i) <= _p(row, i)),
    ),
    "q_is_0": (
        "it does not keep a draft of which q(d) is 0 and p(d) is not: p(d) / q(d) is then as large "
        "as can be",
        prefix(lambda row, i: _q(row, i) > 0 and passes(row, i)),
    ),
}


def _refused(wrong: Callable[[Row, int], Vector]) -> Weights:
    """Goes wrong where a draft is refused."""
    return lambda row, n: wrong(row, n) if n < row.length else row.p[n]


def _complete(wrong: Callable[[Row, int], Vector | None]) -> Weights:
    """Goes wrong where all drafts are kept, of which there is one at least."""
    return lambda row, n: wrong(row, n) if n == row.length > 0 else right_weights(row, n)


def _without_draft(row: Row, n: int) -> Vector:
    others = row.p[n].copy()
    others[row.drafts[n]] = 0
    return others if others.sum() else row.p[n]


#: Of what the token behind the kept drafts is picked from.
_WEIGHTS: dict[str, tuple[str, Weights]] = {
    "again_p": (
        "after a rejection it picks from p. But what p and q have in common has come out already, "
        "by the drafts that were kept: only what p has more than q is still to be given out",
        _refused(lambda row, n: row.p[n]),
    ),
    "again_q": (
        "after a rejection it picks from q, whose draft has just been refused",
        _refused(lambda row, n: row.q[n]),
    ),
    "without_draft": (
        "after a rejection it picks from p without the draft. That is right only if the drafter "
        "was certain: else all tokens that q likes too much are to go, not this one alone",
        _refused(_without_draft),
    ),
    "absolute": (
        "after a rejection it picks from |p - q|: where q has more than p, nothing is lacking",
        _refused(lambda row, n: np.abs(row.p[n] - row.q[n])),
    ),
    "last_row": (
        "after a rejection it picks from p[s, lengths[s]], the row behind the last draft. That row "
        "follows tokens which are not in the text",
        _refused(lambda row, n: row.p[row.length]),
    ),
    "next_row": (
        "after a rejection it picks from the row behind: the token takes the place of draft n, and "
        "what should stand there is p[s, n]",
        _refused(lambda row, n: row.p[n + 1]),
    ),
    "no_bonus": (
        "when all drafts are kept, it adds no token. The model has computed what follows them, "
        "too: one more is to be had for nothing",
        _complete(lambda row, n: None),
    ),
    "row_before": (
        "when all drafts are kept, the token behind is picked from p[s, n - 1], where the last "
        "draft came from. What follows n drafts is p[s, n]",
        _complete(lambda row, n: row.p[n - 1]),
    ),
    "repaired": (
        "when all drafts are kept, nothing has to be repaired: the token behind comes from p[s, n] "
        "as it is, not from what p has more than q",
        _complete(lambda row, n: lacking(row.p[n - 1], row.q[n - 1])),
    ),
    "end_of_p": (
        "when all drafts of a sequence are kept, the token behind comes from the row after its own "
        "last draft, p[s, lengths[s]], not from the last row of p",
        _complete(lambda row, n: row.p[-1]),
    ),
    "most_likely": (
        "it takes the likeliest token instead of picking one",
        lambda row, n: np.eye(row.p.shape[1])[right_weights(row, n).argmax()],
    ),
}

#: Of the number that it is picked by.
_DRAWS: dict[str, tuple[str, Draw]] = {
    "test_draw": (
        "it picks by draws[s, n, 0], which has tested the draft. That number is known to be large, "
        "since the draft has failed: it finds only tokens at the end. Pick by draws[s, n, 1]",
        lambda row, n: float(row.draws[n, 0]),
    ),
    "first_draw": (
        "it always picks by draws[s, 0, 1]: behind n drafts, it is draws[s, n, 1]",
        lambda row, n: float(row.draws[0, 1]),
    ),
    "last_draw": (
        "it always picks by the last of draws[s]: behind n drafts, it is draws[s, n, 1]",
        lambda row, n: float(row.draws[-1, 1]),
    ),
}


def _rule_with(
    count: Count = right_count, weights: Weights = right_weights, draw: Draw = right_draw
) -> Callable[[Row], Outcome]:
    return lambda row: outcome(row, count=count, weights=weights, draw=draw)


COUNTS = {name: Mistake(*mistake) for name, mistake in _COUNTS.items()}
#: Tokens that come out if one thing is misunderstood, and nothing else.
TOKENS = {
    **{name: Mistake(said, _rule_with(weights=of)) for name, (said, of) in _WEIGHTS.items()},
    **{name: Mistake(said, _rule_with(draw=of)) for name, (said, of) in _DRAWS.items()},
    **{name: Mistake(said, _rule_with(count=of)) for name, (said, of) in _COUNTS.items()},
}


def explained(
    rows: Sequence[Row], outcomes: Sequence[object], known: Iterable[Mistake]
) -> str | None:
    """What is to be said of these outcomes, if a mistake gives the very same."""
    found = [
        said
        for said, rule in known
        if all(rule(row) == outcome for row, outcome in zip(rows, outcomes, strict=True))
    ]
    by_chance = len(found) > 1 and len(rows) <= FEW
    return found[0] if found and not by_chance else None
