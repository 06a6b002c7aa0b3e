"""ex04: continuous batching, in three steps (slot `scheduler`)."""

from __future__ import annotations

from minillm_serve.course.exercises import answers_ex04 as answers
from minillm_serve.course.exercises import cases_ex04 as cases
from minillm_serve.course.exercises import service_rules as rules
from minillm_serve.course.exercises.exercise import Check, Exercise, Limits, Part
from minillm_serve.course.exercises.service import serve
from minillm_serve.course.exercises.service_crowds import Maker, described, described_list

IN_ORDER = (rules.by_rank, rules.whole_fit, rules.seats_filled)


def _sliced(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        expected=answers.slices,
        explain=answers.slices_mistake,
        describe=described_list,
    )


def _entered(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=answers.serve_entrance,
        judge=rules.judged(*IN_ORDER),
        describe=described,
    )


def _served(name: str, points: float, made: Maker, *also: rules.Rule) -> Check:
    return Check(
        name,
        points,
        made,
        run=serve,
        judge=rules.judged(*also),
        describe=described,
    )


SLICES = Part(
    id="slices",
    answer="slices",
    checks=(
        _sliced("gives everybody all that is missing, if the budget is large", cases.ample_cases),
        _sliced("cuts the last slice to what is left", cases.cut_cases),
        _sliced("ends where the budget ends", cases.ended_cases),
    ),
    hints=(
        "Keep a number beside the loop: what is left of the budget. What can a slice be at most, "
        "and what does it leave?",
        "A slice is min(missing, left). Before it: is anything left? If not, leave the loop.",
    ),
)

ENTER = Part(
    id="enter",
    answer="Entrance",
    checks=(
        _entered("lets everybody in who waits, each with a slice", cases.some_guests),
        _entered("stops at the last seat, and fills it when it is free", cases.few_seats),
        _entered("stops where the budget ends", cases.few_tokens),
        _entered("lets nobody in without blocks for all tokens", cases.few_blocks),
        _entered("lets nobody pass the first in line", cases.large_first),
    ),
    hints=(
        "Four things can end it: nobody waits, no budget, no seat, no blocks. Three of them can "
        "stand in the condition of one `while`.",
        "The blocks are asked for all tokens, not for the slice: self.blocks.grow(sequence, "
        "len(sequence)). If that is False, nobody else gets them instead: leave the loop.",
        "In the loop: sequence = self.waiting.head(); grow, or break; self.admit(sequence); "
        "num_tokens = min(sequence.num_uncomputed, budget); append ScheduledSequence.of(sequence, "
        "num_tokens); budget -= num_tokens. The condition: self.waiting and budget > 0 and "
        "len(self.running) < self.max_num_seqs.",
    ),
)

STEP = Part(
    id="step",
    answer="MyScheduler",
    checks=(
        _served(
            "reads a prompt slice by slice, then types token by token",
            1,
            cases.alone,
            rules.all_served,
        ),
        _served(
            "gives everybody who runs a slice, in every step", 1, cases.readers, rules.all_served
        ),
        _served(
            "fills a seat in the step in which it is free",
            1,
            cases.few_seats,
            *IN_ORDER,
            rules.all_served,
        ),
        _served("goes on when blocks run out", 2, cases.growing, rules.last_gives_way),
        _served(
            "answers a crowd in as few steps as the engine's own",
            2,
            cases.crowds,
            *IN_ORDER,
            rules.all_served,
            rules.few_preemptions,
            rules.no_slower,
        ),
    ),
    hints=(
        "Two halves: first those who run, each with a slice of the budget; then let_in gets what "
        "is left. Who comes in has got a slice already: do not go over self.running again.",
        "Go over a copy, list(self.running): make_room may take the last one out of it while you "
        "look. Whoever gave way has not the status RUNNING any more, and gets nothing.",
        "For each: num_tokens = min(sequence.num_uncomputed, budget); if budget is 0, stop; if "
        "self.make_room(sequence, num_tokens, preempted) append the slice and subtract it. Then, "
        "if nobody was preempted, made += self.let_in(budget), and Batch(tuple(made), "
        "tuple(preempted)).",
    ),
)

EXERCISE = Exercise(
    id="ex04",
    name="continuous_scheduler",
    title="A batch that is put together anew in every step",
    chapter="04",
    parts=(SLICES, ENTER, STEP),
    slot="scheduler",
    hidden_points=8,
    limits=Limits(seconds=30),
)
