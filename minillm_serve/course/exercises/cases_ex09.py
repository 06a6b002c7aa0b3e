"""Steps, promises and crowds that the first answers to ex09 are tried on."""

from __future__ import annotations

import random
from typing import Any

from minillm_serve.course.exercises.exercise import Case

GIB, MIB, TERA = 2**30, 2**20, 1e12


def _machine(rng: random.Random, **changes: Any) -> Case:
    """A step whose arithmetic is next to nothing, with changes."""
    return {
        "batch": rng.randint(5, 200),
        "context": rng.randrange(300, 4000),
        "weights": float(rng.randint(6, 60) * GIB),
        "kv": rng.choice((0.125, 0.25, 0.5)) * MIB,
        "bandwidth": float(rng.randrange(500, 4000, 100) * GIB),
        "flops": 1e9,
        "peak": 900 * TERA,
        **changes,
    }


def memory_cases(rng: random.Random) -> list[Case]:
    """The chapter's own step, and others that wait for bytes."""
    example = {"batch": 64, "context": 1024, "weights": 14.0 * GIB, "kv": 0.5 * MIB}
    return [_machine(rng, **example, bandwidth=2000.0 * GIB), *(_machine(rng) for _ in range(2))]


def compute_cases(rng: random.Random) -> list[Case]:
    """Many rows, short contexts, little arithmetic a second."""
    return [
        _machine(
            rng,
            batch=rng.randint(300, 2000),
            context=rng.randint(8, 60),
            flops=float(rng.randint(12, 20)) * 1e9,
            peak=rng.randint(40, 160) * TERA,
        )
        for _ in range(2)
    ]


def _stairs(rng: random.Random, steps: float, most: int) -> Case:
    """Times in binary fractions, so that sums are exact."""
    fixed, rise = rng.randint(4, 30) / 1024, rng.randint(3, 40) / 16384
    group = rng.choice((4, 8, 16))
    promise = fixed + rise * steps
    return {"fixed": fixed, "rise": rise, "group": group, "promise": promise, "most": most}


def largest_cases(rng: random.Random) -> list[Case]:
    """Promises between two stairs."""
    return [_stairs(rng, rng.randint(2, 9) + 0.5, 400) for _ in range(3)]


def exact_cases(rng: random.Random) -> list[Case]:
    """Promises that a stair meets exactly."""
    return [_stairs(rng, rng.randint(2, 9), 400) for _ in range(2)]


def border_cases(rng: random.Random) -> list[Case]:
    """Nobody is served in time; everybody is; there is only one."""
    return [
        _stairs(rng, 0.5, 100),
        _stairs(rng, 60, rng.randint(50, 90)),
        _stairs(rng, 3.5, 1),
    ]


def wide_cases(rng: random.Random) -> list[Case]:
    """Far too many to try one after the other."""
    case = _stairs(rng, rng.randint(1000, 50_000) + 0.5, 1_000_000)
    return [case]


def described_stairs(case: Case) -> str:
    """A promise in one line."""
    return (
        f"a step of B takes {case['fixed']:.6g} s and {case['rise']:.6g} s for every "
        f"{case['group']} begun, promised {case['promise']:.6g} s, most = {case['most']}"
    )


def _crowd(rng: random.Random, load: float) -> Case:
    """A crowd that asks for so much of the ceiling."""
    fixed, each = rng.randint(4, 40) / 1e3, rng.randint(2, 20) / 1e4
    output = float(rng.randrange(60, 400, 10))
    return {"rate": load / (output * each), "output": output, "fixed": fixed, "each": each}


def crowd_cases(rng: random.Random) -> list[Case]:
    """Crowds that settle."""
    return [_crowd(rng, rng.uniform(low, low + 0.2)) for low in (0.1, 0.4, 0.7)]


def flood_cases(rng: random.Random) -> list[Case]:
    """More than the ceiling."""
    return [_crowd(rng, load) for load in (1.2, rng.uniform(1.5, 4))]
