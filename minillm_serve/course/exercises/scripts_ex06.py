"""ex06's caches at work: scripts of calls, and what came of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from minillm_serve.core import InvariantViolation, Namespace
from minillm_serve.course.exercises.evidence import raised
from minillm_serve.course.exercises.exercise import Case

SHOWN, LONG = 12, 8
PLAIN = Namespace()


class Call(NamedTuple):
    """One call of a script: a method of `PrefixCache`, and what it is given."""

    method: str
    arguments: tuple[Any, ...]


def named(namespace: Namespace) -> str:
    """Those of its fields that are given, as a call would give them."""
    given = [(name, value) for name, value in asdict(namespace).items() if value]
    return ", ".join(f"{name}={value!r}" for name, value in given)


def match(tokens: list[int], namespace: Namespace = PLAIN) -> Call:
    """A look-up."""
    return Call("match", (tokens, namespace))


def publish(
    tokens: list[int],
    table: list[int],
    num_written: int | None = None,
    namespace: Namespace = PLAIN,
) -> Call:
    """Blocks for the index; all tokens are written by default."""
    return Call(
        "publish", (tokens, table, len(tokens) if num_written is None else num_written, namespace)
    )


def lock(block: int) -> Call:
    """A lock."""
    return Call("lock", (block,))


def unlock(block: int) -> Call:
    """Its end."""
    return Call("unlock", (block,))


def evict(count: int) -> Call:
    """Room is needed."""
    return Call("evict", (count,))


def withdraw(block: int) -> Call:
    """A block that was never written."""
    return Call("withdraw", (block,))


CLEAR = Call("clear", ())


def script(*calls: Call, block_size: int = 4, num_blocks: int = 16) -> Case:
    """A case.

    Args:
        calls: in order.
        block_size: tokens a block.
        num_blocks: blocks are numbered below it.
    """
    return {"block_size": block_size, "num_blocks": num_blocks, "calls": list(calls)}


def titles(case: Case) -> list[str]:
    """The calls as a learner would write them.

    Long prompts get a name where they come first, `A=[...]`; the plain namespace is left out.
    """
    names: dict[str, list[int]] = {}
    return [
        f"{method}({', '.join(_shown(item, names) for item in arguments if item != PLAIN)})"
        for method, arguments in case["calls"]
    ]


def _shown(argument: Any, names: dict[str, list[int]]) -> str:
    if isinstance(argument, Namespace):
        return named(argument)
    if not isinstance(argument, list):
        return str(argument)
    for name, tokens in names.items():
        if len(argument) > 2 and tokens[: len(argument)] == argument:
            return name if argument == tokens else f"{name}[:{len(argument)}]"
    if len(argument) <= LONG:
        return str(argument)
    name = chr(ord("A") + len(names))
    names[name] = argument
    return f"{name}={argument}"


def described(case: Case) -> str:
    """The script in one line."""
    calls = titles(case)
    more = f"; and {len(calls) - SHOWN} calls more" if len(calls) > SHOWN else ""
    return f"block_size={case['block_size']}; {'; '.join(calls[:SHOWN])}{more}"


def play(cache_class: Any, case: Case) -> list[dict[str, Any]]:
    """The learner's side: makes the calls and notes down, for each, what happened."""
    cache = cache_class(case["block_size"])
    log = []
    for method, arguments in case["calls"]:
        entry: dict[str, Any] = {"got": None, "refused": False, "error": None}
        log.append(entry)
        try:
            entry["got"] = getattr(cache, method)(*_copied(arguments))
        except InvariantViolation as error:
            entry["refused"] = True
            entry["error"] = raised(error)
        except NotImplementedError:
            raise
        except Exception as error:
            entry["error"] = raised(error)
            break
        entry["cached"], entry["evictable"] = cache.num_cached, cache.num_evictable
        entry["indexed"] = [block for block in range(case["num_blocks"]) if block in cache]
    return log


def _copied(arguments: tuple[Any, ...]) -> list[Any]:
    """Lists are the caller's own, and change later."""
    return [list(item) if isinstance(item, list) else item for item in arguments]
