"""The right answers to ex09, and the wrong ones that are easily given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from minillm_serve.course.exercises.exercise import Case, CheckFailed

Mistakes = Callable[[Case], Mapping[str, float | None]]

#: Relative error of floats.
TOLERANCE = 1e-9
#: Up to so many batches may be tried one after the other.
PATIENCE = 1000


def step_time(
    batch: int, context: int, weights: float, kv: float, bandwidth: float, flops: float, peak: float
) -> float:
    """The slower of moving and computing."""
    return max((weights + batch * context * kv) / bandwidth, batch * flops / peak)


def settles_at(rate: float, output: float, fixed: float, each: float) -> float | None:
    """B = rate n (fixed + each B), solved; None where there is no such batch."""
    load = rate * output * each
    return None if load >= 1 else rate * output * fixed / (1 - load)


def mistaken(mistakes: Mistakes) -> Callable[[Case, Any, Any], str | None]:
    """Makes an `explain`: the first mistake that leads to the value that was got."""

    def explain(case: Case, expected: Any, got: Any) -> str | None:
        for reason, value in mistakes(case).items():
            if not _same(value, expected) and _same(value, got):
                return reason
        return None

    return explain


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(other, bool) or not isinstance(other, int | float):
        return False
    return math.isclose(one, other, rel_tol=TOLERANCE)


def step_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to misjudge a step."""
    B, bw = case["batch"], case["bandwidth"]  # noqa: N806
    cache = case["context"] * case["kv"]
    moving = (case["weights"] + B * cache) / bw
    computing = B * case["flops"] / case["peak"]
    one_row = case["flops"] / case["peak"]
    return {
        "the weights are read once a step, whatever the batch": max(
            B * (case["weights"] + cache) / bw, computing
        ),
        "each sequence has a cache of its own: B of them are read": max(
            (case["weights"] + cache) / bw, computing
        ),
        "the caches are missing": max(case["weights"] / bw, computing),
        "one token of each cache is not enough: all L of them are read": max(
            (case["weights"] + B * case["kv"]) / bw, computing
        ),
        "bytes and arithmetic are done at the same time: the slower one counts, not their sum":
            moving + computing,
        "these are the bytes alone, and here the arithmetic takes longer": moving,
        "this is the arithmetic alone, and here the bytes take longer": computing,
        "this is the arithmetic of one row: there are B of them": max(moving, one_row),
        "this is the throughput: asked for is the time of a step": B / max(moving, computing),
    }  # fmt: skip


def settle_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to misjudge a crowd."""
    rate, output, fixed, each = (case[k] for k in ("rate", "output", "fixed", "each"))
    load = rate * output * each
    right = settles_at(**case)
    return {
        "a batch below 0: more is asked for than the ceiling 1 / each gives, so it grows for ever. "
        "Return None": rate * output * fixed / (1 - load) if load != 1 else None,
        "somebody alone stays for n * t(1): with others in the step it takes longer": rate
        * output
        * (fixed + each),
        "people stay for n steps, not for one": rate * fixed / (1 - rate * each)
        if rate * each < 1
        else None,
        "the step of an empty server: what each of them adds is missing": rate * output * fixed,
        "there is room for this crowd: rate * output * each is below 1": None
        if right is not None
        else math.nan,
        "as a batch, so many would need as long as for ever: return None": math.inf,
        "these are people a second": rate,
    }


class Stairs:
    """A step time that grows in steps, as kernels that take rows in groups have it.

    Args:
        fixed: seconds of an empty step.
        rise: seconds that each group adds.
        group: rows in a group.
        most: batches above this must not be asked for.
    """

    def __init__(self, fixed: float, rise: float, group: int, most: int) -> None:
        self.fixed, self.rise, self.group, self.most = fixed, rise, group, most
        self.asked: list[Any] = []

    def __call__(self, batch: Any) -> float:
        """Seconds of a step of so many; what was asked for is kept."""
        self.asked.append(batch)
        if len(self.asked) > 5000:
            raise RuntimeError("step_time was asked 5,000 times: is that a loop without an end?")
        return self.seconds(batch)

    def seconds(self, batch: float) -> float:
        """The same, and nobody takes a note."""
        return self.fixed + self.rise * math.ceil(batch / self.group)


def run_largest(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side of `largest_batch`: what it said, and what it asked for."""
    stairs = Stairs(case["fixed"], case["rise"], case["group"], case["most"])
    found = answer(stairs, case["promise"], case["most"])
    odd = [b for b in stairs.asked if isinstance(b, bool) or not isinstance(b, int)]
    return {
        "found": found,
        "calls": len(stairs.asked),
        "lowest": min(stairs.asked, default=None) if not odd else None,
        "highest": max(stairs.asked, default=None) if not odd else None,
        "odd": [repr(b) for b in odd[:1]],
    }


def largest(case: Case) -> int:
    """The right answer, by arithmetic."""
    groups = math.floor((case["promise"] - case["fixed"]) / case["rise"] + 1e-9)
    return max(0, min(case["most"], groups * case["group"]))


def judge_largest(case: Case, got: Any) -> None:
    """The exact batch, asked for in few questions.

    Raises:
        CheckFailed: naming the mistake, if it is a known one.
    """
    if not isinstance(got, dict) or set(got) != {"found", "calls", "lowest", "highest", "odd"}:
        raise CheckFailed("the questions that were asked are not the ones that were noted")
    found, right = got["found"], largest(case)
    if got["odd"]:
        raise CheckFailed(f"it asks for a batch of {got['odd'][0]}: a batch is a whole number")
    if isinstance(found, bool) or not isinstance(found, int):
        raise CheckFailed("give a whole number of sequences, an int", expected=right, got=found)
    if found != right:
        raise CheckFailed(_wrong_batch(case, found, right), expected=right, got=found)
    ends = [b for b in (got["lowest"], got["highest"]) if b is not None]
    if outside := [b for b in ends if not 1 <= b <= case["most"]]:
        raise CheckFailed(
            f"it asks for the time of a batch of {outside[0]}: ask from 1 to most, {case['most']}"
        )
    allowed = 2 * math.ceil(math.log2(case["most"] + 1)) + 4
    if case["most"] > PATIENCE and got["calls"] > allowed:
        raise CheckFailed(
            f"the batch is right, but step_time was asked {got['calls']} times: halving what is "
            f"left each time takes {math.ceil(math.log2(case['most'] + 1))} or so"
        )


def _wrong_batch(case: Case, found: int, right: int) -> str:
    stairs = Stairs(case["fixed"], case["rise"], case["group"], case["most"])
    if found > case["most"]:
        return f"there are at most {case['most']} sequences"
    if right == 0:
        return "not even one is served in time: return 0"
    if found < 0:
        return "a batch below 0 is none"
    if found > right:
        return (
            f"a step of {found} takes {stairs.seconds(found):.6g} s, and {case['promise']:.6g} s "
            "were promised"
        )
    if found == right - case["group"] and stairs.seconds(right) == case["promise"]:
        return "a promise that is met exactly is kept: <=, not <"
    if found == right - 1:
        return "one more is served in time, too: is the last one that was tried looked at?"
    return f"a step of {right} takes {stairs.seconds(right):.6g} s, which is in time"
