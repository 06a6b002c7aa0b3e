"""The `scheduler` slot."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from minillm_serve.core import Batch, HashPrefixCache, MakeScheduler, Scheduler
from minillm_serve.core.invariants import check_batch
from minillm_serve.parts.part import Part
from minillm_serve.parts.rehearsal import rehearse


def fit_scheduler(part: Part | None, ours: MakeScheduler) -> MakeScheduler:
    """Somebody's scheduler, watched; ours if there is none.

    Raises:
        PartError: it is no subclass of `Scheduler`, or fails its rehearsal.
    """
    if part is None:
        return ours
    part.check_class()
    watched = _watched(part)
    part.check_signature(part.value, MakeScheduler.__call__, "__init__")
    part.check_signature(part.value.schedule, Scheduler.schedule, "schedule")
    for prefix_cache in (None, HashPrefixCache):
        with part.trial("a rehearsal"):
            served = rehearse(scheduler=watched, prefix_cache=prefix_cache)
        part.expect(not served.leaked, f"left {served.leaked} blocks referenced in a rehearsal")
    return watched


def _watched(part: Part) -> type[Scheduler]:
    """A subclass that does the same and names the part in whatever it raises.

    Raises:
        PartError: the part is no scheduler, or has no `schedule`.
    """
    is_one = inspect.isclass(part.value) and issubclass(part.value, Scheduler)
    part.expect(is_one, "is no subclass of minillm_serve.core.Scheduler")
    missing = ", ".join(sorted(part.value.__abstractmethods__))
    part.expect(not missing, f"does not implement {missing}()")
    methods = inspect.getmembers(part.value, inspect.isfunction)
    guarded = {
        name: _guard(part, name, method)
        for name, method in methods
        if name == "__init__" or not name.startswith("_")
    }
    built: Any = type(part.value.__name__, (part.value,), guarded)
    assert issubclass(built, Scheduler)
    return built


def _guard(part: Part, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Scheduler, *args: Any, **kwargs: Any) -> Any:
        with part.blame(name):
            result = method(self, *args, **kwargs)
        if name == "schedule":
            if not isinstance(result, Batch):
                raise part.error(f"returned {result!r} from schedule, expected a Batch")
            with part.trial("an invariant of what it scheduled"):
                check_batch(self, result)
        return result

    return call
