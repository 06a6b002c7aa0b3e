"""What makes a schedule a good one. Each rule finds the first step at which a service is not."""

from __future__ import annotations

import math
from collections.abc import Callable

from minillm_serve.core import ContinuousScheduler
from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.service import serve
from minillm_serve.course.exercises.service_books import Moment, Service, listed
from minillm_serve.course.exercises.service_replay import replay

Rule = Callable[[Service], None]
Judge = Callable[[Case, object], None]


def judged(*rules: Rule) -> Judge:
    """A check's judge: everybody is served, and by these rules."""

    def judge(case: Case, got: object) -> None:
        service = replay(case, got)
        for rule in rules:
            rule(service)

    return judge


def by_rank(service: Service) -> None:
    """Nobody comes in before somebody of lower rank who waits."""
    for moment in service.moments:
        waited = [name for name in moment.missing if name not in moment.before]
        for name in moment.admitted:
            passed = [other for other in waited if other not in moment.running]
            passed = [other for other in passed if _rank(service, other) < _rank(service, name)]
            if passed:
                raise service.fail(
                    f"{name} comes in and passes {passed[0]}, who stands before {name} in "
                    "self.waiting. Where whoever happens to fit is let in first, the small ones "
                    "keep coming and a large one starves",
                    step=moment.step,
                    expected=f"nobody comes in before {passed[0]}",
                    got=f"{listed(moment.admitted)} comes in",
                )


def seats_filled(service: Service) -> None:
    """Whoever is first in line comes in as soon as a seat, some budget and all blocks are there."""
    for moment in service.moments:
        left = service.case["budget"] - sum(moment.slices.values())
        seats = service.case["seats"] - len(moment.running)
        if moment.preempted or not moment.waiting or left < 1 or seats < 1:
            continue
        head = min(moment.waiting, key=lambda name: _rank(service, name))
        needed = _blocks_of(service, moment, head)
        if needed <= moment.free:
            raise service.fail(
                f"{head} waits, though there is a free seat, {left} tokens of the budget are left "
                f"and {moment.free} blocks are free",
                step=moment.step,
                expected=f"{head} comes in with its {moment.missing[head]} tokens: {needed} blocks",
                got=f"{len(moment.running)} of {service.case['seats']} seats taken",
            )


def whole_fit(service: Service) -> None:
    """Who comes in has blocks for all tokens, not for the first slice only."""
    for moment in service.moments:
        for name in moment.admitted:
            needed = _blocks_of(service, moment, name)
            if len(moment.running[name]) < needed:
                raise service.fail(
                    f"{name} comes in with {moment.missing[name]} tokens, and gets blocks for its "
                    "first slice only. When the rest do not fit, it is thrown out half-way "
                    "through its prompt, and begins again",
                    step=moment.step,
                    expected=f"{needed} blocks: enough for all of its tokens",
                    got=f"{len(moment.running[name])} blocks",
                )


def all_served(service: Service) -> None:
    """Everybody who runs gets all that is missing, or what is left of the budget."""
    for moment in service.moments:
        left = service.case["budget"] - sum(moment.slices.values())
        # What had been meant for those who then gave way may be lost for this step.
        left -= sum(moment.missing[name] for name in moment.preempted)
        for name in moment.running:
            got, missing = moment.slices.get(name, 0), moment.missing[name]
            if left < 1 or got == missing:
                continue
            raise service.fail(
                f"{name} runs and gets {got or 'no'} tokens, though {missing} are missing and "
                f"{left} more are left of the budget",
                step=moment.step,
                expected=min(missing, got + left),
                got=got,
            )


def gaps_bounded(service: Service) -> None:
    """Between two tokens of somebody who runs, no more is computed than the budget allows."""
    budget, since = service.case["budget"], dict[str, list[Moment]]()
    for moment in service.moments:
        for name in moment.running:
            if name in moment.admitted:
                since.pop(name, None)
            if name in since:
                since[name].append(moment)
                total = sum(sum(one.slices.values()) for one in since[name])
                if total > budget:
                    raise service.fail(
                        _stalled(name, since[name], total),
                        step=moment.step,
                        expected=f"at most {budget} tokens, the budget, between two of {name}'s",
                        got=total,
                    )
            if name in moment.sampled:
                since[name] = []


def _stalled(name: str, moments: list[Moment], total: int) -> str:
    others = max(moments[0].slices, key=lambda other: moments[0].slices[other])
    return (
        f"{name} is typing and stalls: since its last token {total} tokens were computed for "
        f"others, among them {moments[0].slices[others]} of {others}'s in step {moments[0].step}. "
        "Who lacks one token gets it first, and only what is left of the budget is for prompts"
    )


def last_gives_way(service: Service) -> None:
    """Who loses their blocks is the last in rank of all who run."""
    for moment in service.moments:
        for name in moment.preempted:
            stays = [other for other in moment.before if other in moment.running]
            later = [other for other in stays if _rank(service, other) > _rank(service, name)]
            if later:
                raise service.fail(
                    f"{name} gives way, and {later[-1]}, who stands behind {name}, keeps its "
                    "blocks: the last in rank gives way, so that the first always gets on",
                    step=moment.step,
                    expected=f"{later[-1]} gives way",
                    got=f"{name} does",
                )


def nobody_in_vain(service: Service) -> None:
    """Nobody loses their blocks who could have kept them."""
    for moment in service.moments:
        if not moment.preempted:
            continue
        name = min(moment.preempted, key=lambda name: _rank(service, name))
        needed = -(-moment.lengths[name] // service.case["block_size"])
        if needed <= moment.free:
            raise service.fail(
                f"{name} gives way in vain: {moment.free} blocks are free now, and all of its "
                f"tokens need {needed}. First ask whether the sequence can grow, then take from "
                "one, and ask again",
                step=moment.step,
                expected=f"{name} keeps its blocks",
                got=f"{listed(moment.preempted)} gives way",
            )


def few_preemptions(service: Service) -> None:
    """Not many more lose their blocks than under the engine's own scheduler."""
    most = math.ceil(1.5 * _reference(service).preemptions) + 1
    if service.preemptions > most:
        moments = [moment for moment in service.moments if moment.preempted]
        raise service.fail(
            f"the blocks of {listed(moments[most].preempted)} are taken: all that this engine "
            "does by now is to compute again what it has thrown away. Who is let in needs blocks "
            "for all tokens, and nobody comes in while somebody lacks one",
            step=moments[min(most, len(moments) - 1)].step,
            expected=f"at most {most} preemptions in all",
            got=service.preemptions,
        )


def no_slower(service: Service) -> None:
    """As many steps as under the engine's own scheduler; one in ten more is allowed."""
    most = math.ceil(1.1 * len(_reference(service).moments))
    if len(service.moments) > most:
        raise service.fail(
            "everybody is served, and it took too many steps: somewhere seats or budget stay "
            "unused",
            expected=f"at most {most} steps",
            got=len(service.moments),
        )


def _reference(service: Service) -> Service:
    return replay(service.case, carried(serve(ContinuousScheduler, service.case)))


def _rank(service: Service, name: str) -> tuple[float, int]:
    return service.rows[name].rank


def _blocks_of(service: Service, moment: Moment, name: str) -> int:
    """Blocks for all tokens of somebody who comes in, or waits, at a moment."""
    return -(-moment.missing[name] // service.case["block_size"])
