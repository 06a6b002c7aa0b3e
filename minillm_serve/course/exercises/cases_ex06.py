"""ex06's cases: prompts that share beginnings, and what happens to their blocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from minillm_serve.core import Namespace
from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.scripts_ex06 import match, publish, script
from minillm_serve.course.exercises.trees_ex06 import tree_case

#: Makes a check's cases.
Maker = Callable[[random.Random], Sequence[Case]]

#: Two numbers of one hash, in Python.
TWINS = (3, 3 + 2**61 - 1)


def tokens_of(rng: random.Random, count: int) -> list[int]:
    """Tokens, none of them twice."""
    return rng.sample(range(10, 100), count)


def blocks_of(rng: random.Random, count: int) -> list[int]:
    """Different blocks, in any order."""
    return rng.sample(range(16), count)


# What two prompts have in common.


def _pair(one: list[int], other: list[int], block_size: int) -> Case:
    return {"one": one, "other": other, "block_size": block_size}


def same_cases(rng: random.Random) -> Sequence[Case]:
    """One is the beginning of the other, or its equal."""
    tokens = tokens_of(rng, 12)
    return [
        _pair([1, 2, 3, 4], [1, 2, 3, 4], 2),
        _pair(tokens, tokens[:8], 4),
        _pair(tokens[:6], tokens, 2),
        _pair([], tokens, 4),
    ]


def parting_cases(rng: random.Random) -> Sequence[Case]:
    """They part, and some have equal blocks again behind that."""
    tokens = tokens_of(rng, 16)
    at = rng.randrange(4, 12)
    changed = [*tokens[:at], 1, *tokens[at + 1 :]]
    return [
        _pair([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 4, 5, 6, 7, 8], 2),
        _pair(tokens, changed, 4),
        _pair([1, *tokens[1:]], tokens, 4),
        _pair(tokens[4:8] + tokens[:4], tokens[:8], 4),
    ]


def partial_cases(rng: random.Random) -> Sequence[Case]:
    """The last block is not whole in one of them, or in neither."""
    tokens, extra = tokens_of(rng, 16), rng.randrange(1, 4)
    return [
        _pair([1, 2, 3], [1, 2, 3], 2),
        _pair(tokens[: 8 + extra], tokens, 4),
        _pair(tokens[: 4 + extra], tokens[: 5 + extra], 8),
    ]


# The tree.


def key_cases(rng: random.Random) -> Sequence[Case]:
    """First blocks that are nearly alike, one that fills no block, and two that are the same."""
    tokens = tokens_of(rng, 9)
    first, at = tokens[:4], rng.randrange(4)
    return [
        _pair([1, 2, 3, 4], [1, 2, 3, 5], 4),
        _pair(first, [*first[:at], 5, *first[at + 1 :]], 4),
        _pair(first, first[::-1], 4),
        _pair([TWINS[0], 7], [TWINS[1], 7], 2),
        _pair(first, first[:3], 4),
        _pair(first, [], 4),
        _pair(first, tokens, 4),
    ]


def sibling_cases(rng: random.Random) -> Sequence[Case]:
    """Prompts that have nothing in common but some tokens: all of them stay."""
    tokens = tokens_of(rng, 4)
    turned = [tokens, tokens[::-1], [*tokens[:3], 5], [*tokens[:2], 5, tokens[3]]]
    numbered = [(one, [number]) for number, one in enumerate(turned)]
    return [
        tree_case(([1, 2], [0]), ([1, 3], [1]), ([1, 2], [0]), size=2),
        tree_case(*numbered, *reversed(numbered)),
    ]


def fork_cases(rng: random.Random) -> Sequence[Case]:
    """A prompt that parts from another inside a run, then one that ends inside it."""
    tokens, fork = tokens_of(rng, 20), rng.randrange(1, 4)
    other = [*tokens[: 4 * fork], 5, *tokens[4 * fork + 1 : 16]]
    blocks = blocks_of(rng, 9)
    own = blocks[:fork] + blocks[4 : 8 - fork]
    return [
        tree_case(([1, 2, 3, 4, 5, 6], [7, 2, 9]), ([1, 2, 3, 4, 8, 8], [7, 2, 5]), size=2),
        tree_case((tokens[:16], blocks[:4]), (other, own)),
        tree_case((tokens[:16], blocks[:4]), (tokens[:8], blocks[:2]), (other, own)),
        tree_case((tokens[:8], blocks[:2]), (tokens[:16], blocks[:4]), (tokens[:4], blocks[:1])),
    ]


def lock_split_cases(rng: random.Random) -> Sequence[Case]:
    """A run that is locked is cut in two, then in three."""
    tokens, blocks, times = tokens_of(rng, 16), blocks_of(rng, 7), rng.randrange(2, 4)
    two, three = [*tokens[:8], 5, *tokens[9:12]], [*tokens[:4], 5, *tokens[5:8]]
    return [
        tree_case(([1, 2, 3, 4], [7, 2]), ([1, 2, 5, 6], [7, 9]), locked={0: 1}, size=2),
        tree_case(
            (tokens, blocks[:4]),
            (two, [*blocks[:2], blocks[4]]),
            (three, [blocks[0], blocks[5]]),
            locked={0: times, 1: 1},
        ),
    ]


# The index.

SYSTEM = [1, 2, 3, 4, 5, 6, 7, 8]


def match_cases(rng: random.Random) -> Sequence[Case]:
    """What was published is found, whole or in part."""
    tokens, blocks = tokens_of(rng, 16), blocks_of(rng, 6)
    other = [*tokens[:8], 5, *tokens[9:]]
    return [
        script(
            publish([1, 2, 3, 4], [7, 2]), match([1, 2, 3, 4]), match([1, 2, 8, 8]), block_size=2
        ),
        script(
            publish(tokens, blocks[:4]),
            match(tokens[:8]),
            match(other),
            match([5, *tokens[1:]]),
            publish(other, blocks[:2] + blocks[4:]),
            match(tokens),
            match(other),
            match([]),
        ),
    ]


def whole_cases(rng: random.Random) -> Sequence[Case]:
    """The beginning of what is cached, up to the middle of a block."""
    tokens, blocks, extra = tokens_of(rng, 12), blocks_of(rng, 3), rng.randrange(1, 4)
    return [
        script(publish(SYSTEM, [7, 2]), match(SYSTEM[:-1])),
        script(publish(tokens, blocks), match(tokens[: 4 + extra]), match(tokens[:extra])),
    ]


def written_cases(rng: random.Random) -> Sequence[Case]:
    """Tables that are longer than what is written."""
    tokens, blocks, extra = tokens_of(rng, 16), blocks_of(rng, 4), rng.randrange(1, 4)
    return [
        script(publish(SYSTEM, [7, 2], 6), match(SYSTEM)),
        script(
            publish(tokens, blocks, extra),
            publish(tokens, blocks, 8 + extra),
            match(tokens),
            publish(tokens[: 12 + extra], blocks, 12 + extra),
            publish(tokens, blocks),
            match(tokens),
        ),
    ]


def twice_cases(rng: random.Random) -> Sequence[Case]:
    """The same tokens once more, in other blocks; and a block that is indexed already."""
    tokens, blocks = tokens_of(rng, 16), blocks_of(rng, 8)
    return [
        script(publish(SYSTEM, [7, 2]), publish(SYSTEM, [4, 5]), match(SYSTEM)),
        script(
            publish(tokens[:8], blocks[:2]),
            publish(tokens, [*blocks[2:4], *blocks[4:6]]),
            match(tokens),
            publish(tokens[::-1][:8], [blocks[6], blocks[0]]),
        ),
    ]


def namespace_cases(rng: random.Random) -> Sequence[Case]:
    """The same tokens in several namespaces."""
    tokens, blocks = tokens_of(rng, 8), blocks_of(rng, 6)
    salt, adapter = Namespace(salt="x"), Namespace(adapter="x")
    spaces = [Namespace(), salt, adapter, Namespace(kv_dtype="x"), Namespace(model="x")]
    rng.shuffle(spaces)
    return [
        script(publish(SYSTEM, [7, 2], namespace=salt), match(SYSTEM)),
        script(publish(SYSTEM, [7, 2], namespace=salt), match(SYSTEM, adapter)),
        script(
            *[publish(tokens, [blocks[i]], 4, space) for i, space in enumerate(spaces)],
            *[match(tokens, space) for space in spaces],
        ),
    ]
