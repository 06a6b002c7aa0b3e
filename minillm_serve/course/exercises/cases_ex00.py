"""Token logs and servers that the answers to ex00 are tried on.

All moments are multiples of 1/64 s: such numbers are added and subtracted exactly, so that a
promise can be met exactly, and no answer is wrong by a rounding.
"""

from __future__ import annotations

import random
from typing import Any

from minillm_serve.course.exercises.exercise import Case

TICK = 1 / 64
Entry = tuple[float, list[float]]


def entry(arrival: int, wait: int, gaps: list[int]) -> Entry:
    """One request, in ticks."""
    moments = [arrival + wait]
    for gap in gaps:
        moments.append(moments[-1] + gap)
    return arrival * TICK, [moment * TICK for moment in moments]


def crowd(rng: random.Random, count: int, *, singles: int = 1, shuffle: bool = True) -> list[Entry]:
    """Requests that overlap, some of them with a single token, in no order."""
    entries, arrival = [], rng.randint(64, 640)
    for index in range(count):
        n = 1 if index < singles else rng.randint(2, 9)
        gaps = [rng.randint(2, 40) for _ in range(n - 1)]
        entries.append(entry(arrival, rng.randint(10, 200), gaps))
        arrival += rng.randint(1, 60)
    if shuffle:
        rng.shuffle(entries)
    return entries


def described(case: Case) -> str:
    """A case in one line; a long log is cut."""
    return ", ".join(f"{name}={_short(value)}" for name, value in case.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list) and len(value) > 3:
        return f"[{', '.join(map(_short, value[:2]))}, ... {len(value)} in all]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return str(value)


def request_cases(rng: random.Random) -> list[Case]:
    """Single requests with several tokens."""
    found = [{"arrival": 2.0, "times": [5.0, 5.25, 5.5, 6.5]}]
    for _ in range(4):
        gaps = [rng.randint(1, 60) for _ in range(rng.randint(1, 12))]
        arrival, times = entry(rng.randint(1, 9999), rng.randint(1, 300), gaps)
        found.append({"arrival": arrival, "times": times})
    return found


def single_cases(rng: random.Random) -> list[Case]:
    """Requests with one token."""
    found = [{"arrival": 2.0, "times": [2.5]}]
    for _ in range(3):
        arrival, times = entry(rng.randint(1, 9999), rng.randint(1, 300), [])
        found.append({"arrival": arrival, "times": times})
    return found


def summary_cases(rng: random.Random) -> list[Case]:
    """Logs; the smallest can be done by hand."""
    by_hand = [(1.0, [2.0, 2.5, 3.0]), (1.5, [2.5, 4.0])]
    found: list[Case] = [{"log": by_hand, "q": 50}]
    for count in (5, 12, 30):
        found.append({"log": crowd(rng, count), "q": rng.choice((90, 95, 99))})
    return found


def disordered_cases(rng: random.Random) -> list[Case]:
    """Logs whose first line is not the first arrival, nor their last line the last token."""
    by_hand = [(3.0, [3.5]), (1.0, [2.0, 6.0]), (2.0, [2.5, 3.0])]
    found: list[Case] = [{"log": by_hand, "q": 95}]
    for count in (4, 9):
        log = sorted(crowd(rng, count), reverse=True)
        found.append({"log": log, "q": 95})
    return found


def tpot_cases(rng: random.Random) -> list[Case]:
    """Logs in which several have one token; and one in which all have."""
    by_hand = [(0.5, [1.0]), (1.0, [2.0, 2.5, 3.0]), (1.5, [2.5, 4.0])]
    found: list[Case] = [{"log": by_hand, "q": 50}]
    for count in (7, 20):
        found.append({"log": crowd(rng, count, singles=3), "q": rng.choice((10, 25, 90))})
    return found


def gapless_cases(rng: random.Random) -> list[Case]:
    """Logs of single tokens."""
    found: list[Case] = [{"log": [(1.0, [1.5])], "q": 95}]
    found.append({"log": crowd(rng, 5, singles=5), "q": 95})
    return found


def promise_cases(rng: random.Random) -> list[Case]:
    """Four requests, one for each way to keep or miss two promises, and crowds."""
    log = [
        (1.0, [1.5, 1.75, 2.0]),  # keeps both
        (1.0, [4.0, 4.25, 4.5]),  # late, then fluent
        (1.5, [2.0, 4.0, 6.0]),  # in time, then stutters
        (2.0, [5.0, 7.0]),  # neither
        (2.0, [2.25, 2.5]),  # keeps both
    ]
    found: list[Case] = [{"log": log, "max_ttft": 1.0, "max_tpot": 0.5}]
    for count in (10, 25):
        entries = crowd(rng, count, singles=0)
        found.append({"log": entries, "max_ttft": 100 * TICK + 1e-3, "max_tpot": 20 * TICK + 1e-3})
    return found


def single_promise_cases(rng: random.Random) -> list[Case]:
    """Logs with single tokens, in time and late."""
    log = [(1.0, [1.5]), (1.0, [4.0]), (1.5, [2.0, 2.25]), (2.0, [2.5])]
    found: list[Case] = [{"log": log, "max_ttft": 1.0, "max_tpot": 0.5}]
    for count in (8, 16):
        entries = crowd(rng, count, singles=4)
        found.append({"log": entries, "max_ttft": 120 * TICK + 1e-3, "max_tpot": 20 * TICK + 1e-3})
    return found


def exact_promise_cases(rng: random.Random) -> list[Case]:
    """Promises that somebody meets exactly."""
    log = [(1.0, [2.0, 2.5, 3.0]), (1.0, [1.5, 1.75]), (2.0, [3.5, 4.5])]
    found: list[Case] = [{"log": log, "max_ttft": 1.0, "max_tpot": 0.5}]
    for _ in range(2):
        wait, gap = rng.randint(20, 90), rng.randint(5, 30)
        entries = [entry(64, wait, [gap, gap]), entry(90, wait + 1, [gap])]
        entries += [entry(80, wait - 1, [gap - 1]), entry(99, wait, [gap + 1, gap + 1])]
        found.append({"log": entries, "max_ttft": wait * TICK, "max_tpot": gap * TICK})
    return found


def server_cases(rng: random.Random) -> list[Case]:
    """Servers with free prompts: only steps count."""
    found: list[Case] = [
        {"output_lens": [100, 300], "batch": 16, "step_time": 0.01, "prefill_time": 0.0}
    ]
    for _ in range(3):
        found.append(_server(rng, prefill=0.0))
    return found


def prompt_cases(rng: random.Random) -> list[Case]:
    """Servers whose prompts take time."""
    found: list[Case] = [
        {"output_lens": [100, 300], "batch": 16, "step_time": 0.01, "prefill_time": 0.125}
    ]
    for _ in range(3):
        found.append(_server(rng, prefill=rng.uniform(0.01, 0.3)))
    return found


def _server(rng: random.Random, prefill: float) -> Case:
    lens = [int(10 * 100 ** rng.random()) for _ in range(rng.randint(5, 40))]
    return {
        "output_lens": lens,
        "batch": rng.choice((4, 8, 32, 64)),
        "step_time": rng.uniform(0.005, 0.08),
        "prefill_time": prefill,
    }
