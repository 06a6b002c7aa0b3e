"""What ex05 should give: a step's plan, ranks; and the step around a learner's `make_room`."""

from __future__ import annotations

import math
from typing import Any

from minillm_serve.core import (
    Batch,
    Request,
    ScheduledSequence,
    Sequence,
    SequenceStatus,
)
from minillm_serve.course.exercises.exercise import Case, CheckFailed
from minillm_serve.course.exercises.service import let_in, name_of, serve

Plan = list[tuple[int, int]]


def plan(case: Case) -> Plan:
    """Turns as (index, tokens): who lacks one token first, then all others; each group in order."""
    missing, left, made = case["missing"], case["budget"], Plan()
    for index in sorted(range(len(missing)), key=lambda index: missing[index] > 1):
        if left == 0:
            break
        made.append((index, min(missing[index], left)))
        left -= made[-1][1]
    return made


def plan_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """Names the thought behind a wrong plan."""
    try:
        turns = [(int(index), int(tokens)) for index, tokens in got]
    except (TypeError, ValueError):
        return "a plan is a list of pairs: (index, tokens)"
    missing, total = case["missing"], sum(tokens for _, tokens in turns)
    if any(tokens == 0 for _, tokens in turns):
        return "an empty slice: whom the budget does not reach is not in the plan"
    if len({index for index, _ in turns}) < len(turns):
        return "somebody has two turns in one step"
    if total > case["budget"]:
        return f"the plan has {total} tokens, and the budget is {case['budget']}"
    typing = [index for index, lacks in enumerate(missing) if lacks == 1]
    without = [index for index in typing if index not in {index for index, _ in turns}]
    if without and any(missing[index] > 1 for index, _ in turns):
        return (
            f"number {without[0]} lacks one token and gets none, while a prompt is read: that is "
            "the stall which chunks are there to prevent"
        )
    if sorted(turns) == sorted(expected):
        return "the right slices in another order: first who lacks one token, then the others"
    if total < min(case["budget"], sum(missing)):
        return (
            f"{case['budget'] - total} tokens of the budget are left, and somebody still lacks some"
        )
    return None


def rank_all(answer: Any, case: Case) -> list[Any]:
    """The learner's side: the ranks of all, in the order of coming."""
    policy = answer(case["ageing"])
    requests = [
        Request(request_id=name_of(number), prompt_token_ids=(1,), priority=priority)
        for number, priority in enumerate(case["priorities"])
    ]
    return [policy.rank(request, number) for number, request in enumerate(requests)]


def judge_ranks(case: Case, got: Any) -> None:
    """Compares the order that ranks make.

    Raises:
        CheckFailed: naming the first who stands in the wrong place.
    """
    priorities, ageing = case["priorities"], case["ageing"]
    numbers = range(len(priorities))
    if not isinstance(got, list) or not all(_is_number(rank) for rank in got):
        raise CheckFailed("a rank is a number", got=got)
    found = sorted(numbers, key=lambda n: (got[n], n))
    right = sorted(numbers, key=lambda n: (ageing * priorities[n] + n, n))
    if found == right:
        return
    place = next(i for i in numbers if found[i] != right[i])
    raise CheckFailed(
        _rank_mistake(case, found),
        index=f"place {place}",
        expected=_who(case, right[place]),
        got=_who(case, found[place]),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _who(case: Case, number: int) -> str:
    return f"{name_of(number)} (priority {case['priorities'][number]}, {number} came before)"


def _rank_mistake(case: Case, found: list[int]) -> str:
    priorities, numbers = case["priorities"], range(len(case["priorities"]))
    if found == sorted(numbers, key=lambda n: (priorities[n], n)):
        return (
            "nobody ages: as long as more important ones keep coming, whoever is less important "
            "waits for ever"
        )
    if found == list(numbers):
        return "everybody goes by order of coming: the priority does not count"
    if found == sorted(numbers, key=lambda n: (-case["ageing"] * priorities[n] + n, n)):
        return "the lower priority number goes first, and here it goes last"
    return (
        f"the order is wrong: {case['ageing']} newcomers weigh as much as one step of priority, "
        "so a step of priority is worth `ageing` places in the queue"
    )


def serve_room(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: their `make_room`, in a step whose other parts are ours."""

    class Roomy(answer):
        def schedule(self) -> Batch:
            made, preempted = list[ScheduledSequence](), list[Sequence]()
            budget = self.max_num_batched_tokens
            for sequence in sorted(self.running, key=lambda s: s.num_uncomputed > 1):
                num_tokens = min(sequence.num_uncomputed, budget)
                if not num_tokens or sequence.status is not SequenceStatus.RUNNING:
                    continue
                if self.make_room(sequence, num_tokens, preempted):
                    made.append(ScheduledSequence.of(sequence, num_tokens))
                    budget -= num_tokens
            made += [] if preempted else let_in(self, budget)
            return Batch(tuple(made), tuple(preempted))

    return serve(Roomy, case)
