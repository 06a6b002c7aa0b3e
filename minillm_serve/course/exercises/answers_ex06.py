"""ex06's judge: goes through a log call by call, and says what the first wrong one means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minillm_serve.course.exercises.books_ex06 import Books, Refused
from minillm_serve.course.exercises.exercise import Case, CheckFailed, Raised
from minillm_serve.course.exercises.scripts_ex06 import Call, titles

Entry = Mapping[str, Any]


def common_blocks(case: Case) -> int:
    """Whole blocks that two prompts begin with."""
    return _common(**case)


def _common(one: list[int], other: list[int], block_size: int) -> int:
    tokens = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    return tokens // block_size


def common_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """What was counted instead."""
    one, other, size = case["one"], case["other"], case["block_size"]
    equal = [a == b for a, b in zip(one, other, strict=False)]
    starts = range(0, len(equal) - size + 1, size)
    mistakes = [
        (
            sum(all(equal[i : i + size]) for i in starts),
            "that counts blocks that are equal behind one that differs. Keys and values follow "
            "from all tokens before, so nothing behind the first difference is the same",
        ),
        (
            -(-_common(one, other, 1) // size),
            "that counts a block that is the same in part. A block is shared as a whole, or not "
            "at all",
        ),
        (_common(one, other, 1), "that counts tokens, and blocks were asked for"),
    ]
    return next((said for value, said in mistakes if value == got != expected), None)


def judge_script(case: Case, got: Any) -> None:
    """Keeps the books as they should be, and finds the first call that they contradict.

    Raises:
        CheckFailed: naming the call.
    """
    try:
        _judge_log(case, got)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckFailed("the log of the calls is not the one that was kept") from error


def _judge_log(case: Case, got: Any) -> None:
    books = Books(case["block_size"])
    for number, (call, title) in enumerate(zip(case["calls"], titles(case), strict=True)):
        before = f"call {number + 1}, {title}"
        if number >= len(got):
            raise CheckFailed(f"{before}: it was never made")
        _judge_call(books, call, got[number], before)
        _judge_counts(books, call, got[number], before)


def _judge_call(books: Books, call: Call, entry: Entry, before: str) -> None:
    try:
        if call.method in ("evict", "clear"):
            _check_raised(entry, before)
            count = call.arguments[0] if call.arguments else len(books.entries)
            _judge_evicted(books, count, _listed(entry, before), before)
            return
        wanted = getattr(books, call.method)(*call.arguments)
    except Refused as reason:
        if not entry["refused"]:
            raise CheckFailed(
                f"{before}: {reason}", expected="raise InvariantViolation", got=entry["got"]
            ) from None
        return
    _check_raised(entry, before)
    explain = _EXPLAIN.get(call.method)
    if explain is not None:
        told = _listed(entry, before)
        same = sorted(told) == sorted(wanted) if call.method == "withdraw" else told == wanted
        if not same:
            said = explain(books, call, wanted, told)
            raise CheckFailed(f"{before}: {said}", expected=wanted, got=told)


def _check_raised(entry: Entry, before: str) -> None:
    error = entry["error"]
    if isinstance(error, Raised):
        where = f" (line {error.line} of your cell)" if error.line else ""
        raise CheckFailed(f"{before}: it raised {error.type}: {error.message}{where}")


def _listed(entry: Entry, before: str) -> list[int]:
    got = entry["got"]
    if isinstance(got, list) and all(isinstance(block, int) for block in got):
        return got
    raise CheckFailed(f"{before}: it should return a list of blocks", got=got)


def _matched(books: Books, call: Call, wanted: list[int], told: list[int]) -> str:
    """What is wrong with the blocks that `match` returned."""
    tokens, namespace = call.arguments
    for index, block in enumerate(told):
        if wanted[index : index + 1] == [block]:
            continue
        end = (index + 1) * books.block_size
        if end > len(tokens):
            return (
                f"{len(tokens)} tokens fill {len(tokens) // books.block_size} blocks, and the next "
                "one would count as computed, too. The caller has left out the last token of the "
                "prompt so that it is computed; here it would not be, and nothing could be sampled"
            )
        if block not in books.entries:
            was = "is not indexed any more" if block in books.gone else "was never indexed"
            return f"block {block} {was}: whoever has it now writes other tokens there"
        space, held = books.entries[block].prefix
        if held == tuple(tokens[:end]) and space != namespace:
            return f"block {block} is of another namespace: nothing may be found across"
        own, asked = list(held[-books.block_size :]), list(tokens[end - books.block_size : end])
        if own == asked:
            return (
                f"block {block} holds these tokens behind other ones: keys and values follow from "
                "all that comes before"
            )
        return f"block {block} holds {own}, where {asked} was asked for"
    return f"it finds {len(told)} blocks, and {len(wanted)} are cached"


def _published(books: Books, call: Call, wanted: list[int], told: list[int]) -> str:
    """What is wrong with the blocks that `publish` returned."""
    tokens, table, num_written, namespace = call.arguments
    held = books.find(tokens[:num_written], namespace)
    for block in told:
        if block in wanted:
            continue
        index = table.index(block) if block in table else len(table)
        if (index + 1) * books.block_size > num_written:
            return (
                f"{num_written} tokens are written and fill {num_written // books.block_size} "
                f"blocks. Block {block} is not full: whoever found it would read what is not there"
            )
        if index < len(held) and held[index] == block:
            return f"block {block} was indexed before, and only what is new is returned"
        if index < len(held):
            return (
                f"what is in block {block} is cached already, in block {held[index]}, and stays "
                "there: one entry for the same tokens, not two"
            )
        return f"block {block} is not in the table"
    return f"it returns {told}, and {[b for b in wanted if b not in told]} are new and full, too"


def _withdrawn(books: Books, call: Call, wanted: list[int], told: list[int]) -> str:
    """What is wrong with the blocks that `withdraw` returned."""
    if missing := [block for block in wanted if block not in told]:
        return f"{missing} must be forgotten, too: what a block holds counts for all behind it"
    return f"{[block for block in told if block not in wanted]} should stay"


_EXPLAIN: dict[str, Callable[[Books, Call, list[int], list[int]], str]] = {
    "match": _matched,
    "publish": _published,
    "withdraw": _withdrawn,
}


def _judge_evicted(books: Books, count: int, told: list[int], before: str) -> None:
    """One block after the other: each was to go at that moment."""
    for index, block in enumerate(told):
        oldest = books.oldest()
        if index >= count:
            said = f"{count} blocks were asked for"
        elif block not in books.entries:
            said = f"block {block} is not indexed"
        elif block in books.locked():
            said = f"block {block} is locked, or one behind it is: somebody is reading it"
        elif behind := books.behind(block):
            said = (
                f"block {block} goes before block {behind[0]}, which is behind it: no look-up "
                "gets there any more, and it would be lost"
            )
        elif block != oldest:
            said = (
                f"block {block} was used after block {oldest}: the leaf whose last use is longest "
                "ago goes first"
            )
        else:
            books.evict(1)
            continue
        raise CheckFailed(f"{before}: {said}", index=f"[{index}]", expected=oldest, got=told)
    if len(told) < count and books.num_evictable:
        raise CheckFailed(
            f"{before}: it returns {len(told)} blocks, though nobody locks {books.oldest()}",
            got=told,
        )


def _judge_counts(books: Books, call: Call, entry: Entry, before: str) -> None:
    indexed = sorted(books.entries)
    if entry["indexed"] != indexed:
        raise CheckFailed(
            f"{before}: other blocks are indexed now than should be",
            expected=indexed,
            got=entry["indexed"],
        )
    if entry["cached"] != len(indexed):
        raise CheckFailed(
            f"{before}: num_cached is wrong", expected=len(indexed), got=entry["cached"]
        )
    if entry["evictable"] != books.num_evictable:
        raise CheckFailed(
            f"{before}: num_evictable is wrong. {_kept(sorted(books.locked()), call)}",
            expected=books.num_evictable,
            got=entry["evictable"],
        )


def _kept(locked: list[int], call: Call) -> str:
    if call.method == "withdraw":
        return "The locks of what is forgotten do not count any more, on what is before it either"
    if not locked:
        return "Nobody locks anything"
    cut = "; both parts of a run that is cut in two" if call.method in ("match", "publish") else ""
    return f"Locked, by themselves or by what is behind them, are {locked}{cut}"
