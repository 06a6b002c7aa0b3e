"""ex10: who is let in, who waits and who is sent away (slot `admission`)."""

from __future__ import annotations

from collections.abc import Callable

from minillm_serve.course.exercises import answers_ex10 as answers
from minillm_serve.course.exercises import books_ex10 as books
from minillm_serve.course.exercises import cases_ex10 as cases
from minillm_serve.course.exercises import rush_ex10 as rush
from minillm_serve.course.exercises.exercise import Case, Check, Exercise, Limits, Part
from minillm_serve.course.exercises.service_crowds import Maker


def _waited(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=answers.run_waits,
        expected=answers.waits,
        explain=answers.waits_mistake,
        rtol=1e-9,
        describe=cases.described,
    )


def _booked(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=books.keep_books,
        expected=books.books,
        explain=books.books_mistake,
        rtol=1e-9,
        describe=cases.described,
    )


def _knocked(name: str, made: Maker) -> Check:
    return Check(
        name,
        1,
        made,
        run=answers.knock,
        judge=answers.judge_knocks,
        describe=cases.described,
    )


def _rushed(name: str, points: float, made: Maker, judge: Callable[[Case, object], None]) -> Check:
    return Check(name, points, made, run=rush.run_rush, judge=judge, describe=cases.described)


WAITS = Part(
    id="waits",
    answer="waits",
    checks=(
        _waited("divides what waits by the pace", cases.full_loads),
        _waited("is 0 while there is a seat", cases.seat_loads),
        _waited("is 0 while nobody knows the pace", cases.unknown_loads),
    ),
    hints=(
        "Its unit is seconds. What has the unit of tokens here, and what tokens a second?",
        "load.waiting_tokens / load.tokens_per_second, unless load.has_seats, or the second is "
        "None.",
    ),
)

INSIDE = Part(
    id="inside",
    answer="Inside",
    checks=(
        _booked("adds up what a tenant holds", cases.entering),
        _booked("takes off what has left", cases.leaving),
        _booked("knows an equal share", cases.sharing),
    ),
    hints=(
        "leave() is told a request's name and nothing else: what must you have written down to "
        "know whose it was, and how much?",
        "self.requests = {} with (tenant, tokens) by request_id. pop(request_id, None) takes out, "
        "and does nothing the second time.",
        "Those who share: the tenants in self.requests.values(), and the newcomer's: a set.",
    ),
)

DOOR = Part(
    id="door",
    answer="MyAdmission",
    checks=(
        _knocked("accepts whoever finds a seat", cases.seat_scripts),
        _knocked("sends away who would be late, and says when to come again", cases.late_scripts),
        _knocked("has the others wait, no longer than is promised", cases.queue_scripts),
        _knocked("gives nobody more than a share of a queue half full", cases.share_scripts),
        _knocked("knows who has left, and who never was inside", cases.leave_scripts),
        _rushed("is not noticed on a quiet day", 1, cases.quiet_days, rush.judge_quiet_day),
        _rushed("serves most of a rush in time", 2, cases.rushes, rush.judge_goodput),
        _rushed("lets the quiet not pay for the loud", 2, cases.rushes, rush.judge_fairness),
    ),
    hints=(
        "Four cases, in the order of the table: the first that holds decides. Each ends with a "
        "return of another verdict.",
        "Whoever is not refused is entered, before you return. Compute the verdict first, then ask "
        "isinstance(verdict, Refuse).",
        "greedy = held(tenant) + tokens > equal_share(tenant, tokens); it counts only if the wait "
        "is above PATIENCE / 2. A pause: max(1.0, wait).",
    ),
)

EXERCISE = Exercise(
    id="ex10",
    name="admission",
    title="Who is let in",
    chapter="10",
    parts=(WAITS, INSIDE, DOOR),
    slot="admission",
    hidden_points=8,
    limits=Limits(seconds=30),
)
