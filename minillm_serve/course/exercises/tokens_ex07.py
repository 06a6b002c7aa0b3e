"""ex07's judges of counts and of tokens, and what a wrong one gives away about its cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minillm_serve.course.exercises.answers_ex07 import whole_numbers
from minillm_serve.course.exercises.drawn_ex07 import DraftTable
from minillm_serve.course.exercises.exercise import Case, CheckFailed, Opaque
from minillm_serve.course.exercises.mistakes_ex07 import COUNTS, TOKENS, explained
from minillm_serve.course.exercises.rules_ex07 import Row, outcome, right_count, rows_of
from minillm_serve.runtime.spec.accept import PADDING, Accepted

SHAPE = "it should return Accepted(token_ids, counts)"


def judge_counts(case: Case, got: Any) -> None:
    """Compares counts, and names the mistake that gives the same.

    Raises:
        CheckFailed: with a table of the first sequence that is wrong.
    """
    rows = rows_of(case)
    counts = whole_numbers(got, len(rows), "counts")
    wanted = [right_count(row) for row in rows]
    if counts != wanted:
        s = next(s for s, count in enumerate(wanted) if count != counts[s])
        said = explained(rows, counts, COUNTS.values())
        if len(rows) > 1 and set(counts) == {wanted[0]}:
            said = (
                f"every sequence has the count {wanted[0]}, which is right for the first: is each "
                "draft tested, and by the rows of its own sequence?"
            )
        raise CheckFailed(
            said or f"sequence {s}: {_plain_count(rows[s], counts[s])}",
            index=f"[{s}]",
            expected=wanted[s],
            got=counts[s],
            drawing=DraftTable(rows[s]),
        )


def _plain_count(row: Row, count: int) -> str:
    right = right_count(row)
    if not 0 <= count <= row.length:
        return f"it has {row.length} drafts, and cannot keep {count}"
    if count < right:
        return f"draft {count} is kept: its draw is below p / q"
    return f"draft {right} is not kept, and nothing behind it counts"


def run(answer: Any, case: Case) -> Any:
    """The learner's side: what `accept` returns, by name."""
    return named(answer(**case))


def named(accepted: Any) -> Any:
    """The fields of an `Accepted`, or of any pair; anything else as it is."""
    is_pair = isinstance(accepted, tuple) and len(accepted) == len(Accepted._fields)
    return Accepted(*accepted)._asdict() if is_pair else accepted


def judge_tokens(case: Case, got: Any) -> None:
    """Compares counts and tokens, and names the mistake that gives the same.

    Raises:
        CheckFailed: with a table of the first sequence that is wrong.
    """
    rows, width = rows_of(case), case["drafts"].shape[1]
    counts, found = read(got, len(rows), width)
    for s, row in enumerate(rows):
        n, right = outcome(row)
        if counts[s] == n and found[s] == right + [PADDING] * (width - n):
            continue
        said = mistaken(rows, counts, found)
        raise CheckFailed(
            said or f"sequence {s}: {_plain_tokens(row, counts[s], found[s])}",
            index=f"[{s}]",
            expected=f"counts {n}, tokens {right + [PADDING] * (width - n)}",
            got=f"counts {counts[s]}, tokens {found[s]}",
            drawing=DraftTable(row),
        )


def read(got: Any, size: int, width: int) -> tuple[list[int], list[list[int]]]:
    """Counts and rows of token ids, as evidence has them.

    Raises:
        CheckFailed: it is not what `accept` should return.
    """
    if got is None:
        raise CheckFailed("it returned nothing: is there a `return`?")
    if not isinstance(got, dict) or set(got) != set(Accepted._fields):
        kind = got.type if isinstance(got, Opaque) else type(got).__name__
        raise CheckFailed(SHAPE, got=f"a {kind}")
    counts, found = whole_numbers(got["counts"], size, "counts"), got["token_ids"]
    if not isinstance(found, np.ndarray) or found.dtype != np.int64:
        kind = str(found.dtype) if isinstance(found, np.ndarray) else type(found).__name__
        raise CheckFailed("token_ids is no tensor of int64", got=kind)
    if found.shape != (size, width + 1):
        raise CheckFailed(
            "the shape of token_ids is wrong: [S, K + 1], since all K drafts may be kept, and one "
            "token comes behind them",
            expected=[size, width + 1],
            got=list(found.shape),
        )
    return counts, found.tolist()


def mistaken(
    rows: Sequence[Row], counts: Sequence[int], found: Sequence[Sequence[int]]
) -> str | None:
    """What is misunderstood, if this is what follows from it."""
    told = [
        (n, [token for token in ids[: n + 1] if token != PADDING])
        for n, ids in zip(counts, found, strict=True)
    ]
    if told == [outcome(row) for row in rows]:
        return None
    return explained(rows, told, TOKENS.values())


def _plain_tokens(row: Row, count: int, found: Sequence[int]) -> str:
    n, right = outcome(row)
    if count != n:
        return f"{n} of its drafts are kept, and counts says {count}"
    if list(found[: n + 1]) == right:
        behind, refused = list(found[n + 1 :]), row.drafts[n + 1 :]
        if refused and behind[: len(refused)] == refused:
            return "drafts that were not kept are still there, behind the one more token"
        if not any(behind):
            return f"behind the one more token stands PADDING, {PADDING}. 0 is a token"
        return (
            "a second token comes behind the one that was picked. Nothing is known of it: the row "
            "behind was computed as if the draft had been kept"
        )
    if list(found[:n]) != right[:n]:
        return "the drafts that are kept come first, as they are"
    if found[n] == PADDING:
        return "the one more token behind the kept drafts is missing"
    vocab = row.p.shape[1]
    if not 0 <= found[n] < vocab:
        return f"there is no token {found[n]}: was it picked from a row that is NaN?"
    if n < row.length and found[n] == row.drafts[n]:
        return (
            f"draft {n} was not kept, and the same token has been picked in its place: q likes it "
            "more than p, so it is none of those that are lacking"
        )
    return f"the token behind {n} kept drafts is another"
