"""ex02's block pools: scripts of calls, what came of them, and who was wrong first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from minillm_serve.core import InvariantViolation, OutOfBlocks
from minillm_serve.course.exercises.exercise import Case, CheckFailed

#: A call of the script: `("allocate", count)`, or `("acquire" | "release", i)` of the i-th block
#: that was handed out.
Step = tuple[str, int]


def play(pool_class: Any, case: Case) -> list[dict[str, Any]]:
    """The learner's side: makes the calls and notes down, for each, what happened."""
    pool, handed = pool_class(case["num_blocks"]), list[Any]()
    log = [{"call": "a new pool", "got": None, "raised": "", "free": pool.num_free, "counts": {}}]
    for method, number in case["calls"]:
        if method != "allocate" and number >= len(handed):
            break  # it gave fewer blocks than asked for: the judge stops earlier
        argument = number if method == "allocate" else handed[number]
        got, raised = None, ""
        try:
            got = getattr(pool, method)(argument)
        except (OutOfBlocks, InvariantViolation) as error:
            raised = type(error).__name__
        touched = got if method == "allocate" else [argument]
        handed += got if method == "allocate" and isinstance(got, list) else []
        known = [b for b in touched or [] if b in range(case["num_blocks"])]
        log.append(
            {
                "call": f"{method}({argument})",
                "got": got,
                "raised": raised,
                "free": pool.num_free,
                "counts": {block: pool.ref_count(block) for block in known},
            }
        )
    return log


def judge_script(case: Case, got: Any) -> None:
    """Keeps the books as they should be, and finds the first call that they contradict.

    Raises:
        CheckFailed: naming the call.
    """
    if not isinstance(got, list) or len(got) != len(case["calls"]) + 1:
        raise CheckFailed(
            "not every call was made: allocate handed out fewer blocks than it should"
        )
    try:
        _judge_log(case, got)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckFailed("the log of the calls is not the one that was kept") from error


def _judge_log(case: Case, got: list[Any]) -> None:
    books = Counter[int]()
    for number, (entry, step) in enumerate(zip(got, [("", 0), *case["calls"]], strict=True)):
        before = f"call {number}, {entry['call']}" if number else entry["call"]
        _judge_call(case["num_blocks"], books, step, entry, before)
        free = case["num_blocks"] - len(books)
        if entry["free"] != free:
            raise CheckFailed(f"{before}: num_free is wrong", expected=free, got=entry["free"])
        for block, count in entry["counts"].items():
            if count != books[block]:
                raise CheckFailed(
                    f"{before}: ref_count({block}) is wrong", expected=books[block], got=count
                )


def _judge_call(
    num_blocks: int, books: Counter[int], step: Step, entry: dict[str, Any], before: str
) -> None:
    method, number = step
    if method == "allocate":
        _judge_allocate(num_blocks, books, number, entry, before)
    elif method:
        block = int(entry["call"].partition("(")[2].rstrip(")"))
        if not books[block]:
            del books[block]  # looking it up has made it an entry
            _expect_raised("InvariantViolation", entry, f"{before}: that block is free")
            return
        _expect_raised("", entry, before)
        books[block] += 1 if method == "acquire" else -1
        if not books[block]:
            del books[block]


def _judge_allocate(
    num_blocks: int, books: Counter[int], count: int, entry: dict[str, Any], before: str
) -> None:
    free, got = num_blocks - len(books), entry["got"]
    if count > free:
        _expect_raised("OutOfBlocks", entry, f"{before} with {free} free")
        if entry["free"] != free:
            raise CheckFailed(
                f"{before}: it refused, and took blocks all the same",
                expected=f"num_free stays {free}",
                got=entry["free"],
            )
        return
    _expect_raised("", entry, f"{before} with {free} free")
    if not isinstance(got, list) or len(got) != count:
        raise CheckFailed(f"{before}: it should return {count} block ids", got=got)
    for index, block in enumerate(got):
        inside = isinstance(block, int) and 0 <= block < num_blocks
        if not inside:
            said = f"block {block!r} is not one of 0..{num_blocks - 1}"
        elif books[block]:
            said = f"block {block} is in use already: who has it now reads another's tokens"
        else:
            books[block] = 1
            continue
        raise CheckFailed(f"{before}: {said}", index=f"[{index}]", got=got)


def _expect_raised(wanted: str, entry: dict[str, Any], before: str) -> None:
    if entry["raised"] == wanted:
        return
    if not wanted:
        raise CheckFailed(f"{before}: it raised {entry['raised']}, though nothing is wrong")
    raise CheckFailed(
        f"{before}: it should raise {wanted}",
        expected=f"raise {wanted}",
        got=entry["raised"] or entry["got"],
    )


def described(case: Case) -> str:
    """The script in one line."""
    names = {"acquire": "acquire the {}. block", "release": "release the {}. block"}
    shown = [
        f"allocate({number})" if method == "allocate" else names[method].format(number + 1)
        for method, number in case["calls"][:6]
    ]
    more = f", and {len(case['calls']) - 6} calls more" if len(case["calls"]) > 6 else ""
    return f"{case['num_blocks']} blocks: {', '.join(shown)}{more}"


def script(num_blocks: int, *calls: Step) -> Case:
    """A case."""
    return {"num_blocks": num_blocks, "calls": list(calls)}


def _all(method: str, count: int) -> list[Step]:
    return [(method, index) for index in range(count)]


def allocate_cases(rng: random.Random) -> Sequence[Case]:
    """All blocks, in one call and in several."""
    n = rng.randint(5, 40)
    return [
        script(4, ("allocate", 4)),
        script(4, ("allocate", 1), ("allocate", 0), ("allocate", 2), ("allocate", 1)),
        script(n, *(("allocate", 1) for _ in range(n))),
    ]


def too_many_cases(rng: random.Random) -> Sequence[Case]:
    """More than there are; and after the refusal, all that there are."""
    n, first = rng.randint(6, 30), rng.randint(1, 5)
    return [
        script(3, ("allocate", 4), ("allocate", 3)),
        script(n, ("allocate", first), ("allocate", n), ("allocate", n - first), ("allocate", 1)),
    ]


def reuse_cases(rng: random.Random) -> Sequence[Case]:
    """Everything is given back, in another order, and taken again."""
    n = rng.randint(4, 20)
    order = rng.sample(range(n), n)
    shuffled = [("release", index) for index in order]
    return [
        script(2, ("allocate", 2), ("release", 0), ("allocate", 1)),
        script(n, ("allocate", n), *shuffled, ("allocate", n), ("allocate", 1)),
    ]


def shared_cases(rng: random.Random) -> Sequence[Case]:
    """Blocks with more than one reference: as many releases as references free them."""
    times = rng.randint(2, 6)
    return [
        script(2, ("allocate", 1), ("acquire", 0), ("release", 0), ("allocate", 1), ("release", 0)),
        script(
            3,
            ("allocate", 3),
            *[("acquire", 1)] * times,
            *[("release", 1)] * times,
            ("allocate", 1),
            ("release", 1),
            ("allocate", 1),
        ),
    ]


def double_free_cases(rng: random.Random) -> Sequence[Case]:
    """Released once too often, and shared when free already."""
    n = rng.randint(3, 12)
    middle = rng.randrange(n)
    return [
        script(2, ("allocate", 1), ("release", 0), ("release", 0), ("allocate", 2)),
        script(2, ("allocate", 1), ("release", 0), ("acquire", 0), ("allocate", 2)),
        script(n, ("allocate", n), ("release", middle), ("release", middle), *_all("release", 0)),
    ]


def random_cases(rng: random.Random) -> Sequence[Case]:
    """A few hundred calls, none of them wrong."""
    return [script(n, *_random_calls(rng, n, 300)) for n in (3, rng.randint(8, 30))]


def _random_calls(rng: random.Random, num_blocks: int, count: int) -> Iterator[Step]:
    live, handed = list[int](), 0  # an entry a reference, by the number of the block
    for _ in range(count):
        free = num_blocks - len(set(live))
        kind = rng.choice(("allocate", "acquire", "release", "release"))
        if kind == "allocate" or not live:
            wanted = rng.randint(0, max(1, num_blocks // 2))
            yield "allocate", wanted
            if wanted <= free:
                live += range(handed, handed + wanted)
                handed += wanted
        elif kind == "acquire":
            chosen = rng.choice(live)
            live.append(chosen)
            yield kind, chosen
        else:
            yield kind, live.pop(rng.randrange(len(live)))
