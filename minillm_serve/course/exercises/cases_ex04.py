"""ex04's cases: lists of missing tokens, and guests for engines that are short of something."""

from __future__ import annotations

import random

from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.service import Guest, service
from minillm_serve.course.exercises.service_crowds import crowd


def ample_cases(rng: random.Random) -> list[Case]:
    """More budget than anybody needs."""
    missing = [rng.randint(1, 9) for _ in range(rng.randint(4, 8))]
    return [
        {"missing": [3], "budget": 8},
        {"missing": [], "budget": 8},
        {"missing": missing, "budget": sum(missing)},
        {"missing": missing, "budget": sum(missing) + rng.randint(1, 9)},
    ]


def cut_cases(rng: random.Random) -> list[Case]:
    """The budget ends inside of a slice."""
    head = [1] * rng.randint(2, 5)
    return [
        {"missing": [20], "budget": 8},
        {"missing": [1, 1, 20], "budget": 8},
        {"missing": [*head, rng.randint(30, 60)], "budget": rng.randint(9, 20)},
    ]


def ended_cases(rng: random.Random) -> list[Case]:
    """The budget ends before the list does, between two slices or inside of one."""
    count = rng.randint(3, 6)
    return [
        {"missing": [5, 4], "budget": 5},
        {"missing": [1, 1, 20, 5], "budget": 8},
        {"missing": [1] * (count + rng.randint(2, 5)), "budget": count},
        {"missing": [rng.randint(4, 9) for _ in range(8)], "budget": rng.randint(11, 20)},
    ]


def some_guests(rng: random.Random) -> list[Case]:
    """Everything is there for everybody."""
    return [
        service(Guest(0, 3, 2)),
        service(Guest(0, 2, 3), Guest(0, 4, 2), Guest(1, 3, 2), budget=16),
        service(*crowd(rng, 6, prompt=6, output=8), seats=8, budget=64),
    ]


def few_seats(rng: random.Random) -> list[Case]:
    """More guests than seats; they leave one by one, and the seats fill again."""
    return [
        service(Guest(0, 2, 2), Guest(0, 2, 5), Guest(0, 2, 2), seats=2, budget=32),
        service(*crowd(rng, 12, prompt=5, output=12, every=0), seats=3, budget=64),
        service(*crowd(rng, 12, prompt=5, output=20), seats=4, budget=64),
    ]


def few_tokens(rng: random.Random) -> list[Case]:
    """Prompts of one budget and of more."""
    return [
        service(Guest(0, 5, 2), Guest(0, 5, 2), budget=8),
        service(Guest(0, 8, 2), Guest(0, 3, 2), budget=8),
        service(Guest(0, 3, 6), Guest(1, 21, 2), Guest(1, 2, 2), budget=8),
        service(*crowd(rng, 8, prompt=20, output=6), seats=8, budget=rng.randint(6, 10)),
    ]


def few_blocks(rng: random.Random) -> list[Case]:
    """Prompts that fill several blocks each, and few blocks; nobody's answer needs another one."""
    return [
        service(Guest(0, 12, 2), Guest(0, 13, 2), num_blocks=6),
        service(Guest(0, 14, 2), Guest(1, 26, 2), Guest(1, 13, 3), num_blocks=10, budget=16),
        service(*whole_blocks(rng, 8), num_blocks=rng.randint(10, 12), budget=16),
    ]


def whole_blocks(rng: random.Random, count: int) -> list[Guest]:
    """Guests whose answers fit into the last block of their prompt."""
    return [Guest(0, 4 * rng.randint(1, 6) + 1, rng.randint(2, 4)) for _ in range(count)]


def large_first(rng: random.Random) -> list[Case]:
    """Somebody large is first in line, and smaller ones behind would fit."""
    small = [Guest(step, 3, 2) for step in range(1, 9)]
    large = rng.randint(25, 27)
    return [
        service(Guest(0, 9, 4), Guest(1, 22, 2), Guest(1, 2, 2), num_blocks=7, budget=32),
        service(Guest(0, 9, 4), Guest(1, large, 2), *small, num_blocks=8, budget=32),
    ]


def alone(rng: random.Random) -> list[Case]:
    """One guest at a time, with prompts of all lengths around the budget."""
    lengths = (7, 8, 9, 16, 17, rng.randint(18, 40))
    return [service(Guest(0, length, 5), budget=8) for length in lengths]


def readers(rng: random.Random) -> list[Case]:
    """Long prompts come while others are typing."""
    return [
        service(Guest(0, 2, 9), Guest(1, 20, 3), budget=8),
        service(Guest(0, 2, 9), Guest(0, 2, 9), Guest(2, 30, 3), Guest(2, 9, 3), budget=8),
        service(*crowd(rng, 9, prompt=24, output=9), seats=5, budget=rng.randint(8, 12)),
    ]


def growing(rng: random.Random) -> list[Case]:
    """Answers that need blocks when there are none: somebody gives way."""
    return [
        service(Guest(0, 7, 12), Guest(0, 7, 12), num_blocks=6),
        service(Guest(0, 5, 9), Guest(0, 1, 12), Guest(1, 13, 4), Guest(2, 8, 8), num_blocks=8),
        service(*crowd(rng, 12, prompt=8, output=40, every=0), seats=6, budget=16, num_blocks=14),
    ]


def crowds(rng: random.Random) -> list[Case]:
    """A day's work."""
    return [
        service(*crowd(rng, 24, prompt=24, output=30, every=1), seats=6, budget=16, num_blocks=24),
        service(*crowd(rng, 24, prompt=12, output=40, every=1), seats=8, budget=24, num_blocks=24),
    ]
