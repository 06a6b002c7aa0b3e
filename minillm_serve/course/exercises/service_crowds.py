"""Guests by the dozen, and cases in one line."""

from __future__ import annotations

import random
from collections.abc import Callable

from minillm_serve.course.exercises.exercise import Case
from minillm_serve.course.exercises.service import Guest, name_of

#: Makes a check's cases.
Maker = Callable[[random.Random], list[Case]]

_SHOWN = 5


def crowd(
    rng: random.Random,
    count: int,
    *,
    prompt: int,
    output: int,
    every: int = 2,
    priorities: tuple[int, ...] = (0,),
) -> list[Guest]:
    """Most bring and want little, some a lot.

    Args:
        rng: draws them.
        count: how many.
        prompt: most tokens of a prompt.
        output: most tokens of an answer; everybody wants 2 at least.
        every: they come at most so many steps apart.
        priorities: to draw from.
    """
    guests, step = list[Guest](), 0
    for _ in range(count):
        prompt_len, output_len = int(prompt ** rng.random()), 1 + int(output ** rng.random())
        guests.append(Guest(step, prompt_len, output_len, rng.choice(priorities)))
        step += rng.randint(0, every)
    return guests


def described(case: Case) -> str:
    """A service in one line."""
    shown = [
        f"{name_of(number)} comes at {guest.step} with {guest.prompt_len} tokens for "
        f"{guest.output_len}" + (f", priority {guest.priority}" if guest.priority else "")
        for number, guest in enumerate(case["guests"][:_SHOWN])
    ]
    more = len(case["guests"]) - _SHOWN
    shown += [f"and {more} more come"] if more > 0 else []
    return (
        f"{case['seats']} seats, a budget of {case['budget']}, {case['num_blocks']} blocks of "
        f"{case['block_size']}; {'; '.join(shown)}"
    )


def described_list(case: Case) -> str:
    """Missing tokens in one line."""
    return f"missing={case['missing']}, budget={case['budget']}"
