"""ex05: chunks beside typing, ranks that age, and who gives way (slot `scheduler`)."""

from __future__ import annotations

from minillm_serve.course.exercises import answers_ex05 as answers
from minillm_serve.course.exercises import cases_ex05 as cases
from minillm_serve.course.exercises import service_rules as rules
from minillm_serve.course.exercises.answers_ex04 import serve_entrance
from minillm_serve.course.exercises.exercise import Check, Exercise, Limits, Part
from minillm_serve.course.exercises.score import described as described_numbers
from minillm_serve.course.exercises.service import serve
from minillm_serve.course.exercises.service_crowds import Maker, described, described_list


def _planned(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        expected=answers.plan,
        explain=answers.plan_mistake,
        describe=described_list,
    )


def _ranked(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=answers.rank_all,
        judge=answers.judge_ranks,
        describe=described_numbers,
    )


def _roomed(name: str, made: Maker, *also: rules.Rule) -> Check:
    return Check(
        name,
        1,
        made,
        run=answers.serve_room,
        judge=rules.judged(*also),
        describe=described,
    )


def _entered(name: str, made: Maker, *also: rules.Rule) -> Check:
    return Check(
        name,
        1,
        made,
        run=serve_entrance,
        judge=rules.judged(*also),
        describe=described,
    )


def _served(name: str, points: float, made: Maker, *also: rules.Rule) -> Check:
    return Check(name, points, made, run=serve, judge=rules.judged(*also), describe=described)


PLAN = Part(
    id="plan",
    answer="plan",
    checks=(
        _planned("gives those who lack one token their turn first", cases.typing_cases),
        _planned("leaves the rest to the prompts, in order", cases.rest_cases),
        _planned("ends where the budget ends", cases.exhausted_cases),
    ),
    hints=(
        "First put the turns in order, then share out the budget as in ex04. Python's sort keeps "
        "the order of those whose key is equal.",
        "sorted(range(len(missing)), key=lambda index: missing[index] > 1): False comes before "
        "True. Then one loop with min(missing[index], left), which ends when nothing is left.",
    ),
)

AGEING = Part(
    id="ageing",
    answer="Ageing",
    checks=(
        _ranked("lets equals go by order of coming", cases.equals),
        _ranked("lets the more important go first", cases.small_queues),
        _ranked("lets them pass somebody so many times, and not once more", cases.streams),
    ),
    hints=(
        "Put both on one scale: what is a step of priority worth, counted in places in the queue?",
        "self.ageing places. And whoever came after `number` others has `number` places behind "
        "the first.",
        "self.ageing * request.priority + number",
    ),
)

ROOM = Part(
    id="room",
    answer="GiveWay",
    checks=(
        _roomed("takes from the last in rank", cases.short_pools, rules.last_gives_way),
        _roomed(
            "takes from nobody who has a slice already", cases.mixed_pools, rules.last_gives_way
        ),
        _roomed(
            "takes from nobody in vain",
            cases.ample_pools,
            rules.nobody_in_vain,
            rules.last_gives_way,
        ),
    ),
    hints=(
        "self.blocks.grow either gives all blocks or changes nothing, and tells which. So ask "
        "again after each one who gave way.",
        "self.running is in order of rank: the last is self.running[-1]. That may be `sequence` "
        "itself, which is then not running any more: return False.",
        "while not self.blocks.grow(sequence, sequence.num_computed + num_tokens): victim = "
        "self.running[-1]; self.preempt(victim); preempted.append(victim); if victim is sequence: "
        "return False. After the loop: return True.",
    ),
)

ENTER = Part(
    id="enter",
    answer="Entrance",
    checks=(
        _entered(
            "lets nobody in without blocks for all tokens",
            cases.large_prompts,
            rules.whole_fit,
            rules.few_preemptions,
        ),
        _entered(
            "stops where the budget ends",
            cases.spent_budgets,
            rules.seats_filled,
        ),
        _entered(
            "lets in by rank, so that nobody waits for ever",
            cases.queues,
            rules.by_rank,
            rules.seats_filled,
        ),
    ),
    hints=(
        "Three of the four things that can end it stand in the condition of one `while`; the "
        "fourth, blocks, is asked inside.",
        "self.blocks.grow(sequence, len(sequence)) or break, before self.admit(sequence). Take "
        "each slice off the budget.",
    ),
)

FAIR = Part(
    id="fair",
    answer="FairScheduler",
    checks=(
        _served(
            "keeps everybody typing while a long prompt is read",
            1,
            cases.long_prompts,
            rules.gaps_bounded,
        ),
        _served("spends the whole budget", 1, cases.long_prompts, rules.all_served),
        _served(
            "serves a crowd of all priorities as well as the engine's own",
            2,
            cases.days,
            rules.gaps_bounded,
            rules.last_gives_way,
            rules.by_rank,
            rules.all_served,
            rules.few_preemptions,
            rules.no_slower,
        ),
    ),
    hints=(
        "plan tells whose turn it is, by their place in self.running. Take a copy of that list "
        "first: who gives way leaves it.",
        "Whoever gave way before their turn came has another status than RUNNING: skip them. And "
        "after a step that took blocks from somebody, nobody is let in.",
        "running = list(self.running); for index, num_tokens in plan([s.num_uncomputed for s in "
        "running], budget): if running[index] still runs and self.make_room(...) is true, append "
        "ScheduledSequence.of(running[index], num_tokens) and take num_tokens off the budget. "
        "Then let_in, unless somebody was preempted.",
    ),
)

EXERCISE = Exercise(
    id="ex05",
    name="chunking_and_preemption",
    title="Nobody stalls, nobody starves",
    chapter="05",
    parts=(PLAN, AGEING, ROOM, ENTER, FAIR),
    slot="scheduler",
    hidden_points=8,
    limits=Limits(seconds=30),
)
