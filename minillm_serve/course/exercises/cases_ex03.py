"""Launches that the answers to ex03 are tried on. Tensors are made from them by `make_pool`."""

from __future__ import annotations

import random
from collections.abc import Callable

from minillm_serve.course.exercises.exercise import Case

Maker = Callable[[random.Random], list[Case]]


def described(case: Case) -> str:
    """A case in one line."""
    names = {"lengths": "lengths", "heads": "H", "kv_heads": "H_kv", "dim": "D", "block_size": "P"}
    return ", ".join(f"{said}={case[name]}" for name, said in names.items() if name in case)


def described_fold(case: Case) -> str:
    """A case of `fold` in one line."""
    tail = ", the last of them masked but for one position" if case["empty"] else ""
    return (
        f"{case['tiles']} tiles of scores around {case['size']:g}, each {case['rise']:+g} above "
        f"the one before{tail}"
    )


def _launch(
    rng: random.Random,
    lengths: tuple[int, ...],
    heads: int = 2,
    kv_heads: int = 1,
    dim: int = 16,
    block_size: int = 4,
) -> Case:
    return {
        "lengths": lengths,
        "heads": heads,
        "kv_heads": kv_heads,
        "dim": dim,
        "block_size": block_size,
        "seed": rng.randrange(2**31),
    }


def full_tiles(rng: random.Random) -> list[Case]:
    """Whole blocks."""
    return [_launch(rng, (8,)), _launch(rng, (4, 8), heads=3, kv_heads=3)]


def part_tiles(rng: random.Random) -> list[Case]:
    """Last blocks with one token, with some, with all but one."""
    return [_launch(rng, (1,)), _launch(rng, (7, rng.randint(5, 6)), heads=2, kv_heads=2)]


def odd_tiles(rng: random.Random) -> list[Case]:
    """Head dims that are no powers of two."""
    return [_launch(rng, (6,), dim=rng.choice((24, 40)), kv_heads=2)]


def one_tile(rng: random.Random) -> list[Case]:
    """A sequence of two blocks, the last one partly filled."""
    return [_launch(rng, (rng.randint(5, 7),), kv_heads=2)]


def far_blocks(rng: random.Random) -> list[Case]:
    """One block, the ninth, 2^31 elements behind the first."""
    return [_launch(rng, (4,))]


def _scores(
    rng: random.Random, tiles: int, *, rise: float = 0.0, size: float = 1.0, empty: bool = False
) -> Case:
    return {
        "tiles": tiles,
        "rise": rise,
        "size": size,
        "empty": empty,
        "rows": 2,
        "block_size": 4,
        "dim": 16,
        "seed": rng.randrange(2**31),
    }


def single_fold(rng: random.Random) -> list[Case]:
    """One tile."""
    return [_scores(rng, 1)]


def rising_folds(rng: random.Random) -> list[Case]:
    """Each tile brings higher scores than the one before; and lower ones."""
    return [_scores(rng, 2, rise=3.0), _scores(rng, 4, rise=2.0), _scores(rng, 3, rise=-2.0)]


def loud_folds(rng: random.Random) -> list[Case]:
    """Scores of which e^score is no float32."""
    return [_scores(rng, 2, size=200.0), _scores(rng, 3, size=200.0, rise=150.0)]


def masked_folds(rng: random.Random) -> list[Case]:
    """A last tile in which some positions hold no token: their score is -inf."""
    return [_scores(rng, 1, empty=True), _scores(rng, 3, empty=True, rise=1.0)]


def ragged_launches(rng: random.Random) -> list[Case]:
    """1, P - 1, P, P + 1 and more tokens; a last row of the block table that is full."""
    return [
        _launch(rng, (rng.randint(5, 7),)),
        _launch(rng, (1, 3, 4, 5, 8)),
        _launch(rng, (rng.randint(17, 20),), block_size=16),
    ]


def grouped_launches(rng: random.Random) -> list[Case]:
    """Several KV heads, groups of one to seven query heads."""
    return [
        _launch(rng, (3,), heads=4, kv_heads=2),
        _launch(rng, (5,), heads=6, kv_heads=2),
        _launch(rng, (2,), heads=7, kv_heads=1),
        _launch(rng, (4,), heads=3, kv_heads=3),
    ]


def odd_launches(rng: random.Random) -> list[Case]:
    """Head dims that are no powers of two."""
    return [_launch(rng, (6,), heads=4, kv_heads=2, dim=rng.choice((24, 40)))]


def mapped_launches(rng: random.Random) -> list[Case]:
    """One sequence amid the blocks of others; and two."""
    return [
        _launch(rng, (rng.randint(5, 7),)),
        _launch(rng, (rng.randint(9, 11), 4), heads=4, kv_heads=2),
    ]


def engine_runs(rng: random.Random) -> list[Case]:
    """Prompts for a tiny model."""
    return [
        {
            "prompts": [[rng.randint(3, 60) for _ in range(n)] for n in (3, 6)],
            "max_tokens": 4,
            "seed": rng.randrange(2**31),
        }
    ]
