"""Follows the log of a service and finds the first step that breaks a rule of the house.

Everything here works with the log alone, in the process that judges. A log that passes is one of a
schedule under which everybody gets their own answer; whether it is a good one, `service_rules` say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from minillm_serve.course.exercises.evidence import carried
from minillm_serve.course.exercises.exercise import Case, CheckFailed, Raised
from minillm_serve.course.exercises.service import serve
from minillm_serve.course.exercises.service_books import Moment, Service, listed
from minillm_serve.course.exercises.service_checks import check_step
from minillm_serve.course.exercises.service_table import Timetable


def replay(case: Case, got: Any) -> Service:
    """Follows a log to its end.

    Raises:
        CheckFailed: naming the step at which it breaks the rules of the house.
    """
    service = Service(case)
    try:
        for number, entry in enumerate(got["steps"]):
            _replay_step(service, number, entry, got["error"])
        _check_end(service, got["error"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckFailed("the log of the steps is not the one that was kept") from error
    return service


def timetable(scheduler: Any, case: Case) -> Timetable:
    """What a scheduler makes of a case, to look at.

    Raises:
        CheckFailed: as `replay`.
    """
    service = replay(case, carried(serve(scheduler, case)))
    return Timetable(service.moments, list(service.rows), wrong=False)


def _replay_step(
    service: Service, number: int, entry: Mapping[str, Any], error: Raised | None
) -> None:
    for name in entry["came"]:
        service.rows[name].state = "waiting"
    if "slices" not in entry:
        raise _broken(service, number, error)
    moment = _decided(service, number, entry)
    service.moments.append(moment)
    check_step(service, moment, entry)
    if "tokens" not in entry and error is not None:
        raise _broken(service, number, error)
    _commit(service, moment, entry["tokens"])


def _decided(service: Service, number: int, entry: Mapping[str, Any]) -> Moment:
    present = service.those("waiting", "running")
    slices = Counter[str]()
    for name, _, num_tokens, _ in entry["slices"]:
        slices[name] += num_tokens
    return Moment(
        step=number,
        slices=slices,
        missing={row.name: row.missing for row in present},
        lengths={row.name: row.length for row in present},
        before=tuple(row.name for row in service.those("running")),
        running={name: list(table) for name, table in entry["running"]},
        waiting=tuple(entry["waiting"]),
        preempted=tuple(entry["preempted"]),
        free=entry["free"],
        sampled=frozenset(name for name, _, _, samples in entry["slices"] if samples),
    )


def _commit(service: Service, moment: Moment, tokens: Mapping[str, int]) -> None:
    for name, row in service.rows.items():
        if name in moment.running:
            row.state, row.table = "running", moment.running[name]
            row.computed += moment.slices.get(name, 0)
        elif row.state == "running":
            row.state, row.table, row.computed = "waiting", [], 0
    for name, token in tokens.items():
        row = service.rows[name]
        if token != row.solo[row.got]:
            raise service.fail(
                f"token {row.got} of {name}'s answer is not the one that {name} gets alone: the "
                "keys and values that it was computed from are not all its own",
                expected=row.solo[row.got],
                got=token,
            )
        row.got += 1
        if row.got == len(row.solo):
            row.state, row.table = "ended", []


def _check_end(service: Service, error: Raised | None) -> None:
    if error is not None:
        raise _broken(service, len(service.moments), error)
    left = [row for row in service.rows.values() if row.state != "ended"]
    if left:
        row = left[0]
        raise service.fail(
            f"we stopped to wait: {listed(row.name for row in left)} still had no whole answer",
            expected=f"{len(row.solo)} tokens for {row.name}",
            got=f"{row.got} tokens",
        )


def _broken(service: Service, number: int, error: Raised | None) -> CheckFailed:
    """The step in which it came to an end by itself."""
    if error is None:
        return CheckFailed("the log of the steps is not the one that was kept")
    if error.type in ("NoBatch", "InvariantViolation"):
        said = error.message
    elif error.type == "EngineStalled":
        present = listed(row.name for row in service.those("waiting", "running"))
        said = f"the batch is empty, though tokens are missing for {present}"
    else:
        where = f" (line {error.line} of your cell)" if error.line else ""
        said = f"it raised {error.type}: {error.message}{where}"
    return service.fail(said, step=number)
