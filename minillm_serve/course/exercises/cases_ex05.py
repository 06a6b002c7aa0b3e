"""ex05's cases: who goes first, and guests who get in each other's way."""

from __future__ import annotations

import random

from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.service import Guest, service
from minillm_serve.course.exercises.service_crowds import crowd

#: Of all services here; small, so that a short queue shows it.
AGEING = 8
MIXED = (0, 0, 0, 1, 2, -1)


def typing_cases(rng: random.Random) -> list[Case]:
    """Some lack one token, some many."""
    mixed = [rng.choice((1, 1, rng.randint(2, 9))) for _ in range(rng.randint(6, 9))]
    return [
        {"missing": [20, 1], "budget": 8},
        {"missing": [1, 1, 1], "budget": 8},
        {"missing": [5, 1, 4, 1], "budget": 32},
        {"missing": [*mixed, 7, 1], "budget": sum(mixed) + 8},
    ]


def rest_cases(rng: random.Random) -> list[Case]:
    """What the typists leave is less than the prompts need."""
    long = rng.randint(20, 60)
    return [
        {"missing": [20, 1], "budget": 4},
        {"missing": [6, 1, 9, 1], "budget": 10},
        {"missing": [long, 1, long, 1, 1, 3], "budget": long + rng.randint(4, 12)},
    ]


def exhausted_cases(rng: random.Random) -> list[Case]:
    """The typists take it all, or need more than there is; or a prompt ends with the budget."""
    typists = rng.randint(3, 7)
    return [
        {"missing": [9, 1, 1], "budget": 2},
        {"missing": [4, 1, 9], "budget": 5},
        {"missing": [9, *[1] * (typists + 2)], "budget": typists},
        {"missing": [], "budget": 8},
    ]


def equals(rng: random.Random) -> list[Case]:
    """Everybody is as important as everybody else."""
    return [
        {"ageing": 8, "priorities": [0, 0, 0]},
        {"ageing": 8, "priorities": [rng.randint(1, 3)] * rng.randint(5, 9)},
    ]


def small_queues(rng: random.Random) -> list[Case]:
    """Fewer than `ageing`: who is more important goes first, whoever came first."""
    return [
        {"ageing": 8, "priorities": [1, 0, 2]},
        {"ageing": 16, "priorities": [rng.randint(-3, 3) for _ in range(12)]},
    ]


def streams(rng: random.Random) -> list[Case]:
    """One guest of little importance, and one after the other who is more important."""
    ageing = rng.choice((2, 4, 8))  # of which a reciprocal is exact too
    return [
        {"ageing": 2, "priorities": [1, 0, 0, 0, 0]},
        {"ageing": 4, "priorities": [0, 2, *[0] * 12]},
        {"ageing": ageing, "priorities": [rng.randint(-2, 2) for _ in range(40)]},
    ]


def short_pools(rng: random.Random) -> list[Case]:
    """Two who cannot both grow, in one order and in the other; and three of whom two must go."""
    length = rng.randint(5, 7)
    return [
        service(Guest(0, 7, 12), Guest(0, 7, 12), num_blocks=6, ageing=AGEING),
        service(Guest(0, 7, 14, 1), Guest(1, 7, 14), num_blocks=6, ageing=AGEING),
        service(
            *(Guest(0, length, 14, priority) for priority in (2, 0, 1)),
            num_blocks=8,
            budget=24,
            ageing=AGEING,
        ),
    ]


def mixed_pools(rng: random.Random) -> list[Case]:
    """More who are typing than there are blocks to grow into, of all priorities."""
    return [
        service(
            *(Guest(step, 4, 12, priority) for step, priority in enumerate((1, 0, 1, -1))),
            num_blocks=9,
            ageing=AGEING,
        ),
        service(
            *crowd(rng, 12, prompt=8, output=40, every=0, priorities=MIXED),
            seats=6,
            budget=16,
            num_blocks=14,
            ageing=AGEING,
        ),
    ]


def ample_pools(rng: random.Random) -> list[Case]:
    """Growing, and blocks for it; or all blocks are full at once, and there is one more, or none.

    The last in rank gives way, and that is enough for those before.
    """
    lengths = [4 * rng.randint(1, 3), 4 * rng.randint(1, 3), 4 * rng.randint(3, 5)]
    full = [Guest(0, length, 8, priority) for priority, length in enumerate(lengths)]
    blocks = sum(lengths) // 4
    return [
        service(Guest(0, 20, 6), Guest(0, 10, 6), budget=32, num_blocks=12, ageing=AGEING),
        service(*full, budget=64, num_blocks=blocks, ageing=AGEING),
        service(*full, budget=64, num_blocks=blocks + 1, ageing=AGEING),
    ]


def long_prompts(rng: random.Random) -> list[Case]:
    """Somebody important with a long prompt comes while others are typing."""
    return [
        service(Guest(0, 2, 12), Guest(2, 30, 2, -1), ageing=AGEING),
        service(
            *(Guest(0, 3, 16) for _ in range(3)), Guest(3, 40, 2, -2), Guest(4, 9, 3), ageing=AGEING
        ),
        service(
            *crowd(rng, 10, prompt=40, output=16, priorities=(0, 0, -1, -2)),
            budget=rng.randint(8, 12),
            ageing=AGEING,
        ),
    ]


def large_prompts(rng: random.Random) -> list[Case]:
    """Prompts of several budgets, and blocks for one and a half of them."""
    large = rng.randint(30, 34)
    return [
        service(Guest(0, 8, 9), Guest(1, 30, 2), num_blocks=10, ageing=AGEING),
        service(
            Guest(0, 6, 16), Guest(1, large, 3), Guest(2, large, 3), num_blocks=13, ageing=AGEING
        ),
    ]


def spent_budgets(rng: random.Random) -> list[Case]:
    """A prompt of one budget, or the end of one, and others behind it."""
    end = rng.randint(2, 7)
    return [
        service(Guest(0, 8, 2), Guest(0, 3, 2), ageing=AGEING),
        service(Guest(0, 8 + end, 2), Guest(0, 8 - end, 3), Guest(1, 4, 2), ageing=AGEING),
        service(Guest(0, 1, 6), *(Guest(1, 7, 2, p) for p in (0, 1, -1)), ageing=AGEING),
    ]


def queues(rng: random.Random) -> list[Case]:
    """More who wait than seats, the important ones late."""
    return [
        service(
            *(Guest(0, 3, 6), Guest(1, 3, 4, 1), Guest(2, 3, 4), Guest(2, 3, 4)),
            seats=1,
            ageing=AGEING,
        ),
        service(
            *(Guest(0, 5, 20), Guest(0, 26, 2, 1), *(Guest(step, 3, 4) for step in range(1, 24))),
            seats=2,
            num_blocks=9,
            ageing=AGEING,
        ),
        service(
            *crowd(rng, 20, prompt=12, output=12, every=1, priorities=MIXED),
            seats=2,
            ageing=AGEING,
        ),
    ]


def days(rng: random.Random) -> list[Case]:
    """A day's work, with too few blocks for it."""
    return [
        service(
            *crowd(rng, 24, prompt=30, output=30, priorities=MIXED),
            seats=6,
            budget=16,
            num_blocks=22,
            ageing=AGEING,
        )
        for _ in range(2)
    ]
