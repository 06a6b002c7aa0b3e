"""ex06's cases for locks and for what is forgotten."""

from __future__ import annotations

import random
from collections.abc import Sequence

from minillm_serve.core import Namespace
from minillm_serve.course.exercises.books_ex06 import Books
from minillm_serve.course.exercises.cases_ex06 import SYSTEM, blocks_of, tokens_of
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.scripts_ex06 import (
    CLEAR,
    Call,
    evict,
    lock,
    match,
    publish,
    script,
    unlock,
    withdraw,
)


def lock_cases(rng: random.Random) -> Sequence[Case]:
    """Locks in the middle of a run, on forks, and more than one on a block."""
    tokens, blocks, fork = tokens_of(rng, 16), blocks_of(rng, 6), rng.randrange(1, 4)
    other = [*tokens[: 4 * fork], 5, *tokens[4 * fork + 1 : 4 * fork + 4]]
    leaf, middle = blocks[4], blocks[rng.randrange(4)]
    return [
        script(publish(SYSTEM, [7, 2]), lock(7), unlock(7)),
        script(publish(SYSTEM, [7, 2]), match(SYSTEM[:4]), lock(2), unlock(2)),
        script(publish(SYSTEM, [7, 2]), lock(2), match(SYSTEM[:4]), unlock(2)),
        script(
            publish(tokens, blocks[:4]),
            lock(middle),
            publish(other, [*blocks[:fork], leaf]),
            lock(leaf),
            lock(middle),
            unlock(leaf),
            match(tokens[:4]),
            unlock(middle),
            lock(blocks[3]),
            unlock(middle),
            unlock(blocks[3]),
        ),
    ]


def refusal_cases(rng: random.Random) -> Sequence[Case]:
    """One unlock too many, and what was never there."""
    block, other = blocks_of(rng, 2)
    return [
        script(publish(SYSTEM, [7, 2]), lock(3)),
        script(publish(SYSTEM, [7, 2]), unlock(2)),
        script(publish(SYSTEM, [7, 2]), lock(2), unlock(7), unlock(2), unlock(2)),
        script(publish(SYSTEM, [block, other]), lock(block), unlock(other), unlock(block)),
    ]


# What is forgotten.


def lru_cases(rng: random.Random) -> Sequence[Case]:
    """Three prompts behind one system prompt: who was asked for longest ago goes first."""
    ends = [[n, n, n, n] for n in rng.sample(range(20, 90), 3)]
    order = rng.sample(range(3), 3)
    first = script(
        publish([1, 1, 1, 1], [7]), publish([2, 2, 2, 2], [2]), match([1, 1, 1, 1]), evict(1)
    )
    fans = [publish(SYSTEM + end, [0, 1, 2 + number]) for number, end in enumerate(ends)]
    asked = [match(SYSTEM + ends[number]) for number in order]
    return [
        first,
        script(*fans, *asked, evict(1), evict(1), evict(1), evict(9)),
        script(*fans, lock(3), *asked, unlock(3), evict(2), match(SYSTEM), evict(9)),
    ]


def leaf_cases(rng: random.Random) -> Sequence[Case]:
    """Chains go from their ends, and what is forgotten is not found again."""
    tokens, blocks = tokens_of(rng, 16), blocks_of(rng, 5)
    taken = rng.randrange(1, 4)
    again = [5, *tokens[1:4]]
    return [
        script(publish(SYSTEM, [7, 2]), evict(1), match(SYSTEM), evict(1), match(SYSTEM)),
        script(
            publish(tokens, blocks[:4]),
            evict(taken),
            match(tokens),
            publish(again, [blocks[3]]),
            match(tokens),
            publish(tokens[: 4 * (5 - taken)], [*blocks[: 4 - taken], blocks[4]]),
            match(tokens),
            CLEAR,
            match(tokens),
        ),
    ]


def kept_cases(rng: random.Random) -> Sequence[Case]:
    """More is asked for than may be forgotten."""
    tokens, blocks, held = tokens_of(rng, 16), blocks_of(rng, 6), rng.randrange(1, 4)
    other = [*tokens[:4], 5, *tokens[5:8]]
    return [
        script(publish(SYSTEM, [7, 2]), lock(2), evict(2), unlock(2), evict(2)),
        script(publish(SYSTEM, [7, 2]), lock(7), evict(2), match(SYSTEM)),
        script(
            publish(tokens, blocks[:4]),
            lock(blocks[held]),
            publish(other, [blocks[0], blocks[4]]),
            evict(9),
            match(other),
            lock(blocks[held]),
            unlock(blocks[held]),
            CLEAR,
            unlock(blocks[held]),
            CLEAR,
        ),
    ]


def withdrawn_cases(rng: random.Random) -> Sequence[Case]:
    """Blocks that were promised and not written, with others behind them."""
    tokens, blocks, at = tokens_of(rng, 16), blocks_of(rng, 7), rng.randrange(1, 4)
    other = [*tokens[:4], 5, *tokens[5:8]]
    return [
        script(publish(SYSTEM, [7, 2]), withdraw(2), match(SYSTEM), withdraw(2), withdraw(7)),
        script(publish(SYSTEM, [7, 2]), withdraw(7), match(SYSTEM), publish(SYSTEM, [2, 7])),
        script(
            publish(tokens, blocks[:4]),
            publish(other, [blocks[0], blocks[4]]),
            withdraw(blocks[at]),
            match(tokens),
            match(other),
            publish(tokens, [*blocks[:at], *blocks[at:4][::-1]]),
            match(tokens),
            withdraw(blocks[0]),
            match(other),
        ),
    ]


def unheld_cases(rng: random.Random) -> Sequence[Case]:
    """There are locks on what is forgotten, and on what stays."""
    tokens, blocks, at = tokens_of(rng, 16), blocks_of(rng, 7), rng.randrange(1, 4)
    other = [*tokens[:4], 5, *tokens[5:8]]
    return [
        script(publish(SYSTEM, [7, 2]), lock(2), withdraw(2), unlock(2)),
        script(publish(SYSTEM, [7, 2]), lock(7), lock(2), lock(2), withdraw(2), unlock(7)),
        script(
            publish(tokens, blocks[:4]),
            lock(blocks[3]),
            publish(other, [blocks[0], blocks[4]]),
            lock(blocks[0]),
            withdraw(blocks[at]),
            publish(tokens, blocks[:4]),
            lock(blocks[3]),
            unlock(blocks[3]),
            unlock(blocks[3]),
            unlock(blocks[0]),
        ),
    ]


def random_cases(rng: random.Random) -> Sequence[Case]:
    """Some hundred calls on few blocks, so that they come and go."""
    return [
        script(*random_calls(rng, 40, 8), block_size=2, num_blocks=8),
        script(*random_calls(rng, 250, 14), block_size=2, num_blocks=14),
    ]


def random_calls(rng: random.Random, count: int, num_blocks: int) -> list[Call]:
    """Calls that a careful caller makes: free blocks only, and no unlock without a lock."""
    books, calls, held = Books(2), list[Call](), list[int]()
    spaces = [Namespace(), Namespace(salt="x")]
    for _ in range(count):
        call = _random_call(rng, books, held, spaces, num_blocks)
        calls.append(call)
        getattr(books, call.method)(*call.arguments)
        held[:] = [block for block in held if block in books.entries]
    return calls


def _random_call(
    rng: random.Random, books: Books, held: list[int], spaces: list[Namespace], num_blocks: int
) -> Call:
    tokens, space = rng.choices((1, 2), k=rng.randrange(9)), rng.choice(spaces)
    free = [block for block in range(num_blocks) if block not in books.entries]
    found, whole = books.find(tokens, space), len(tokens) // 2
    kind = rng.choice(("publish", "publish", "match", "lock", "unlock", "evict", "withdraw"))
    if kind == "publish" and whole - len(found) <= len(free):
        table = found + rng.sample(free, whole - len(found))
        return publish(tokens, table, len(tokens), space)
    if kind == "lock" and books.entries:
        held.append(rng.choice(list(books.entries)))
        return lock(held[-1])
    if kind == "unlock" and held:
        return unlock(held.pop(rng.randrange(len(held))))
    if kind == "evict":
        return evict(rng.randrange(1, 4))
    if kind == "withdraw" and books.entries and rng.random() < 0.3:
        return withdraw(rng.choice(list(books.entries)))
    return match(tokens, space)
