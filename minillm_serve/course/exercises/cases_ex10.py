"""Loads, books and scripts that the answers to ex10 are tried on."""

from __future__ import annotations

import random
from typing import Any

from minillm_serve.course.exercises.exercise import Case

SEATS = 8
TENANTS = ("ann", "bob", "cem", "dee")
Step = dict[str, Any]


def _full(waiting: int, tokens: int, rate: float | None) -> dict[str, Any]:
    return {
        "num_running": SEATS,
        "max_num_seqs": SEATS,
        "num_waiting": waiting,
        "waiting_tokens": tokens,
        "tokens_per_second": rate,
    }


def full_loads(rng: random.Random) -> list[Case]:
    """All seats taken; the smallest can be done in the head."""
    found = [_full(4, 1000, 500.0), _full(2, 6000, 1000.0)]
    for _ in range(4):
        found.append(_full(rng.randint(3, 40), rng.randint(5, 90) * 100, float(rng.randint(2, 40))))
    return found


def seat_loads(rng: random.Random) -> list[Case]:
    """A seat is left for the newcomer; or it seems so, and somebody has it already."""
    idle = {**_full(0, 0, 100.0), "num_running": 0}
    found = [idle, {**_full(1, 900, 100.0), "num_running": SEATS - 2}]
    found.append({**_full(2, 900, 100.0), "num_running": SEATS - 2})  # two for two seats
    for _ in range(3):
        running = rng.randint(1, SEATS - 2)
        waiting = rng.randint(0, SEATS)
        found.append({**_full(waiting, 300 * waiting, 100.0), "num_running": running})
    return found


def unknown_loads(rng: random.Random) -> list[Case]:
    """No step has run yet."""
    return [_full(rng.randint(1, 9), rng.randint(100, 999), None) for _ in range(2)]


def _calls(rng: random.Random, count: int) -> list[list[Any]]:
    """Some who come and some who go, by turns, and what is asked meanwhile."""
    calls, inside = list[list[Any]](), list[str]()
    for number in range(count):
        name, tenant = f"r{number}", rng.choice(TENANTS)
        calls.append(["enter", name, tenant, rng.randint(1, 20) * 10])
        inside.append(name)
        if len(inside) > 3 and rng.random() < 0.6:
            calls.append(["leave", inside.pop(rng.randrange(len(inside)))])
        calls.append(["held", rng.choice(TENANTS)])
        calls.append(["equal_share", rng.choice(TENANTS), rng.randint(1, 20) * 10])
    return calls


def entering(rng: random.Random) -> list[Case]:
    """Nobody leaves; one tenant has two requests."""
    by_hand = [
        ["enter", "r1", "ann", 100],
        ["enter", "r2", "ann", 50],
        ["enter", "r3", "bob", 30],
        ["held", "ann"],
        ["held", "bob"],
        ["held", "cem"],
    ]
    enters = [call for call in _calls(rng, 8) if call[0] in ("enter", "held")]
    return [{"calls": by_hand}, {"calls": enters}]


def leaving(rng: random.Random) -> list[Case]:
    """Some leave; one leaves twice, and one was never inside."""
    by_hand = [
        ["enter", "r1", "ann", 100],
        ["enter", "r2", "ann", 50],
        ["leave", "r1"],
        ["held", "ann"],
        ["leave", "r1"],
        ["leave", "r9"],
        ["held", "ann"],
    ]
    return [{"calls": by_hand}, {"calls": [c for c in _calls(rng, 12) if c[0] != "equal_share"]}]


def sharing(rng: random.Random) -> list[Case]:
    """What an equal share is: with a newcomer of a known tenant, and of a new one."""
    by_hand = [
        ["equal_share", "ann", 60],
        ["enter", "r1", "ann", 100],
        ["enter", "r2", "bob", 20],
        ["equal_share", "ann", 60],
        ["equal_share", "cem", 60],
        ["leave", "r2"],
        ["equal_share", "ann", 60],
    ]
    return [{"calls": by_hand}, {"calls": _calls(rng, 10)}, {"calls": _calls(rng, 20)}]


def _knock(name: str, tenant: str, load: Step, prompt: int = 50, answer: int = 50) -> Step:
    return {"knock": name, "tenant": tenant, "prompt": prompt, "answer": answer, "load": load}


def seat_scripts(rng: random.Random) -> list[Case]:
    """Free seats: for the first, for a long one, for one who has much already."""
    idle = {**_full(0, 0, None), "num_running": 0}
    idle["tokens_per_second"] = 1000.0
    some = {**_full(0, 0, 1000.0), "num_running": SEATS - 1}
    steps = [_knock("r1", "ann", idle), _knock("r2", "ann", some, prompt=3000)]
    more = [
        _knock(f"r{n}", rng.choice(TENANTS), some, prompt=rng.randint(1, 3000))
        for n in range(3, 12)
    ]
    return [{"steps": steps[:1]}, {"steps": steps + more}]


def late_scripts(rng: random.Random) -> list[Case]:
    """A wait beyond the promise: many who wait, and few with much."""
    found = [
        {"steps": [_knock("r1", "ann", _full(30, 6000, 1000.0))]},
        {"steps": [_knock("r1", "ann", _full(2, 6000, 1000.0))]},
    ]
    for _ in range(3):
        tokens = rng.randint(50, 200) * 100
        load = _full(rng.randint(2, 40), tokens, tokens / rng.uniform(3, 15))
        found.append({"steps": [_knock("r1", rng.choice(TENANTS), load)]})
    return found


def queue_scripts(rng: random.Random) -> list[Case]:
    """A wait that can be borne: few who wait, and many with little."""
    found = [
        {"steps": [_knock("r1", "ann", _full(2, 500, 1000.0))]},
        {"steps": [_knock("r1", "ann", _full(60, 1900, 1000.0))]},
    ]
    for _ in range(3):
        tokens = rng.randint(10, 90) * 100
        load = _full(rng.randint(2, 80), tokens, tokens / rng.uniform(0.2, 1.9))
        found.append({"steps": [_knock("r1", rng.choice(TENANTS), load)]})
    return found


def share_scripts(rng: random.Random) -> list[Case]:
    """One tenant holds much; the queue is more than half full, and then less."""
    seats = {**_full(0, 0, 1000.0), "num_running": 2}
    half, little = _full(6, 1500, 1000.0), _full(6, 800, 1000.0)
    steps = [_knock(f"r{n}", "dee", seats, prompt=400) for n in range(1, 5)]
    steps += [_knock("r5", "ann", seats, prompt=100)]
    steps += [_knock("r6", "dee", half), _knock("r7", "ann", half), _knock("r8", "bob", half)]
    steps += [_knock("r9", "dee", little, prompt=400)]
    greedy = rng.choice(TENANTS)
    others = [name for name in TENANTS if name != greedy]
    more = [_knock(f"s{n}", greedy, seats, prompt=rng.randint(300, 900)) for n in range(4)]
    more += [_knock(f"t{n}", others[n], seats, prompt=rng.randint(20, 90)) for n in range(3)]
    more += [_knock("u1", greedy, half), *(_knock(f"u-{name}", name, half) for name in others)]
    return [{"steps": steps}, {"steps": more}]


def leave_scripts(rng: random.Random) -> list[Case]:
    """Who held much has left; who was refused was never inside."""
    seats = {**_full(0, 0, 1000.0), "num_running": 2}
    half = _full(6, 1500, 1000.0)
    steps = [_knock(f"r{n}", "dee", seats, prompt=500) for n in range(1, 5)]
    steps += [_knock("r5", "ann", seats, prompt=400), _knock("r6", "dee", half)]
    steps += [{"leave": f"r{n}"} for n in range(1, 5)]
    steps += [_knock("r7", "dee", half), _knock("r8", "dee", half, prompt=600)]
    more = list[Step]()
    for number in range(24):
        more.append(_knock(f"q{number}", "dee", seats, prompt=rng.randint(200, 600)))
        more.append({"leave": f"q{number}"})
    more += [_knock("a1", "ann", seats, prompt=200), _knock("d1", "dee", half, prompt=40)]
    return [{"steps": steps}, {"steps": more}]


def rushes(rng: random.Random) -> list[Case]:
    """A tenant sends ten times as much."""
    return [{"seed": f"{rng.randrange(10**6)}", "times": 10.0}]


def quiet_days(rng: random.Random) -> list[Case]:
    """Nobody does."""
    return [{"seed": f"{rng.randrange(10**6)}", "times": 1.0}]


def described(case: Case) -> str:
    """A script or a rush in one line."""
    if "times" in case:
        return f"a rush of {case['times']:g} times as much, drawn from seed {case['seed']}"
    if "calls" in case:
        shown = [f"{name}({', '.join(map(repr, rest))})" for name, *rest in case["calls"][:6]]
        return "; ".join(shown) + (" ..." if len(case["calls"]) > 6 else "")
    if "steps" in case:
        steps = case["steps"]
        told = [
            f"leave({s['leave']!r})"
            if "leave" in s
            else f"{s['knock']} of {s['tenant']}, {s['prompt']} + {s['answer']} tokens"
            for s in steps[-3:]
        ]
        return ("... " if len(steps) > 3 else "") + "; ".join(told)
    return ", ".join(f"{name}={value}" for name, value in case.items())
