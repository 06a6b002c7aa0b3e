"""What ex04 should give: slices of a budget; and the step around a learner's `let_in`."""

from __future__ import annotations

from typing import Any

from minillm_serve.core import Batch, ScheduledSequence, Sequence
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.service import serve


def slices(case: Case) -> list[int]:
    """Everybody's tokens in turn, for as long as the budget lasts."""
    left, made = case["budget"], list[int]()
    for missing in case["missing"]:
        if left == 0:
            break
        made.append(min(missing, left))
        left -= made[-1]
    return made


def slices_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """Names the thought behind wrong slices."""
    if not isinstance(got, list) or not all(isinstance(n, int) for n in got):
        return None
    if 0 in got:
        return "an empty slice: whoever the budget does not reach is left out of the list"
    if got == [min(missing, case["budget"]) for missing in case["missing"]]:
        return "each slice is cut at the whole budget: what one takes is gone for the next"
    if sum(got) > case["budget"]:
        return f"they add up to {sum(got)} tokens, and the budget is {case['budget']}"
    if len(got) < len(expected) and got == expected[: len(got)]:
        return "budget is left, and the next in line gets none: a slice may be less than is missing"
    return None


def serve_entrance(answer: Any, case: Case) -> dict[str, Any]:
    """The learner's side: their `let_in`, in a step whose other half is ours."""

    class Entered(answer):
        def schedule(self) -> Batch:
            made, preempted = list[ScheduledSequence](), list[Sequence]()
            budget = self.max_num_batched_tokens
            for sequence in list(self.running):
                num_tokens = min(sequence.num_uncomputed, budget)
                while sequence in self.running and not self.blocks.grow(
                    sequence, sequence.num_computed + num_tokens
                ):
                    preempted.append(self.running[-1])
                    self.preempt(self.running[-1])
                if num_tokens and sequence in self.running:
                    made.append(ScheduledSequence.of(sequence, num_tokens))
                    budget -= num_tokens
            made += [] if preempted else self.let_in(budget)
            return Batch(tuple(made), tuple(preempted))

    return serve(Entered, case)
