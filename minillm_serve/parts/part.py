"""Somebody's part: whose it is, what is wrong with it, and who is to blame."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from minillm_serve.core import EngineStalled, InvariantViolation, PartError


@dataclass(frozen=True, slots=True)
class Part:
    """What somebody brought for a slot.

    Attributes:
        slot: the slot's name.
        value: the class, the function or whatever else it is.
    """

    slot: str
    value: Any

    @property
    def owner(self) -> str:
        """The part's own name, such as `__main__.MyBlockPool`."""
        return name_of(self.value)

    def error(self, what: str) -> PartError:
        """The error that says what is wrong: a sentence that begins with the part."""
        return PartError(self.slot, self.owner, what)

    @contextmanager
    def blame(self, doing: str = "", *passing: type[BaseException]) -> Iterator[None]:
        """Names this part in whatever it raises inside.

        Args:
            doing: the method that is called.
            passing: what the protocol allows it to raise.

        Raises:
            PartError: from the exception that was raised. (One of another part stays as it is.)
        """
        through: tuple[type[BaseException], ...] = (PartError, *passing)
        try:
            yield
        except through:
            raise
        except Exception as error:
            where = f" in {doing}" if doing else ""
            raise self.error(f"raised {type(error).__name__}{where}: {error}") from error

    @contextmanager
    def trial(self, what: str) -> Iterator[None]:
        """Names this part if what is done with it inside comes to a bad end.

        Raises:
            PartError: as `blame`.
        """
        try:
            yield
        except PartError:
            raise
        except Exception as error:
            ours = isinstance(error, InvariantViolation | EngineStalled)
            kind = "" if ours else f"{type(error).__name__}: "
            raise self.error(f"failed {what}: {kind}{error}") from error

    def expect(self, condition: bool, what: str) -> None:
        """Raises `error(what)` unless the condition holds."""
        if not condition:
            raise self.error(what)

    def check_class(self) -> None:
        """Refuses an instance where the engine must build one itself."""
        self.expect(
            inspect.isclass(self.value),
            f"is of type {type(self.value).__name__}: give a class, which the engine builds",
        )

    def check_signature(self, of: Callable[..., Any], like: Callable[..., Any], name: str) -> None:
        """Compares parameters: the same names in the same places; more only with defaults.

        Args:
            of: the part's function or class.
            like: what the engine calls it as; a first parameter `self` does not count.
            name: what to call it in the error.
        """
        try:
            have = _parameters(of)
        except (TypeError, ValueError):
            raise self.error(f"{name} has no signature that could be checked") from None
        want = _parameters(like)
        if not _fits(have, want):
            raise self.error(f"has {name}({_listed(have)}), expected {name}({_listed(want)})")

    def check_methods(self, instance: object, protocol: type) -> None:
        """Checks that an instance has every method and attribute of a protocol."""
        for name, member in vars(protocol).items():
            if name.startswith("_"):
                continue
            if isinstance(member, property):
                with self.blame(name):
                    getattr(instance, name)
            elif inspect.isfunction(member):
                method = getattr(instance, name, None)
                what = f"has no {name}({_listed(_parameters(member))})"
                self.expect(callable(method), what)
                self.check_signature(method, member, name)  # type: ignore[arg-type]


def name_of(value: Any) -> str:
    """`module.name` of a class, a function or an instance's class."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {name_of(item)}" for key, item in value.items())
    while isinstance(value, partial):
        value = value.func
    if not hasattr(value, "__qualname__"):
        value = type(value)
    return f"{value.__module__}.{value.__qualname__}"


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(function).parameters.values() if p.name != "self"]


def _fits(have: list[inspect.Parameter], want: list[inspect.Parameter]) -> bool:
    """Whether a call with `want`'s parameters reaches the same names in `have`."""
    by_name = {p.name: p for p in have}
    catch_all = any(p.kind is p.VAR_KEYWORD for p in have)
    places = [p.name for p in have if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for place, parameter in enumerate(p for p in want if p.kind is not p.KEYWORD_ONLY):
        if places[place : place + 1] != [parameter.name]:
            return False
    for parameter in (p for p in want if p.kind is p.KEYWORD_ONLY):
        found = by_name.get(parameter.name)
        if found is None and not catch_all:
            return False
        if found is not None and found.kind is found.POSITIONAL_ONLY:
            return False
    wanted = {p.name for p in want}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    extra = [p for p in have if p.name not in wanted and p.kind not in variable]
    return all(p.default is not p.empty for p in extra)


def _listed(parameters: list[inspect.Parameter]) -> str:
    """Names only, as they stand in a `def`."""
    bare = [p.replace(annotation=p.empty, default=p.empty) for p in parameters]
    return str(inspect.Signature(bare)).strip("()")
