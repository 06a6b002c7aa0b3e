"""The right answers to ex00, and the wrong ones that are easily given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minillm_serve.course.exercises.exercise import Case
from minillm_serve.sim import metrics
from minillm_serve.sim.metrics import SLO, TokenLog
from minillm_serve.sim.queueing import service_rate

Mistakes = Callable[[Case], Mapping[str, float | None]]


def logs_of(case: Case) -> list[TokenLog]:
    """The case's log as the package has it."""
    return [TokenLog(arrival, tuple(times)) for arrival, times in case["log"]]


def request(case: Case) -> TokenLog:
    """The one request of a case."""
    return TokenLog(case["arrival"], tuple(case["times"]))


def summary(case: Case, key: str) -> float | None:
    """One figure of a log: `throughput`, or a percentile of `ttft` or `tpot`."""
    logs = logs_of(case)
    if key == "throughput":
        return metrics.throughput(logs)
    found = [getattr(log, key) for log in logs if getattr(log, key) is not None]
    return metrics.percentile(found, case["q"]) if found else None


def goodput(case: Case) -> float:
    """Requests that met both promises, per second of the makespan."""
    return metrics.goodput(logs_of(case), SLO(ttft=case["max_ttft"], tpot=case["max_tpot"]))


def saturation(case: Case) -> float:
    """B / (n * t_B), with the prompt's own time."""
    mean = float(np.mean(case["output_lens"]))
    return service_rate(case["batch"], mean, case["step_time"], case["prefill_time"])


def mistaken(mistakes: Mistakes) -> Callable[[Case, Any, Any], str | None]:
    """Makes an `explain`: the first mistake that leads to the value that was got."""

    def explain(case: Case, expected: Any, got: Any) -> str | None:
        for reason, value in mistakes(case).items():
            if not _same(value, expected) and _same(value, got):
                return reason
        return None

    return explain


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (one, other))
    return numbers and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def ttft_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to mistake the first token's time."""
    arrival, times = case["arrival"], case["times"]
    return {
        "this is a moment on the clock, not a wait: it counts from the arrival": times[0],
        "this is the whole answer: the first token is waited for here": times[-1] - arrival,
    }


def tpot_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to mistake the mean gap."""
    arrival, times = case["arrival"], case["times"]
    n, span = len(times), times[-1] - times[0]
    return {
        "between n tokens there are n - 1 gaps, and this divides by n": span / n,
        "this counts from the arrival: the wait for the first token is TTFT's, not TPOT's":
            (times[-1] - arrival) / n,
        "this counts from the arrival, over n - 1 gaps: the wait for the first token is TTFT's":
            (times[-1] - arrival) / max(n - 1, 1),
        "this is the middle gap, and TPOT is the mean one":
            float(np.median(np.diff(times))) if n > 1 else None,
    }  # fmt: skip


def single_mistakes(case: Case) -> dict[str, float | None]:
    """A single token has no gap."""
    return {
        "a single token has no gap: 0 would look infinitely fast, return None": 0.0,
        "a single token has no gap: its wait is TTFT's, return None":
            case["times"][0] - case["arrival"],
    }  # fmt: skip


def throughput_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to mistake tokens per second."""
    logs = logs_of(case)
    tokens = sum(len(log.times) for log in logs)
    first, last = min(log.arrival for log in logs), max(log.times[-1] for log in logs)
    spans = {
        "the requests ran side by side: divide by the makespan, not by the sum of their latencies":
            sum(log.e2e for log in logs),
        "the clock did not start at 0: the makespan begins with the first arrival": last,
        "the makespan begins with the first arrival, not with the first token":
            last - min(log.times[0] for log in logs),
        "the first line of a log need not be the first arrival, nor the last the last token":
            logs[-1].times[-1] - logs[0].arrival,
        "the last line of a log need not hold the last token": logs[-1].times[-1] - first,
        "the first line of a log need not be the first arrival": last - logs[0].arrival,
    }  # fmt: skip
    found = {reason: tokens / span for reason, span in spans.items() if span > 0}
    found["these are requests per second, and tokens were asked for"] = len(logs) / (last - first)
    return found  # type: ignore[return-value]


def percentile_mistakes(key: str) -> Mistakes:
    """Ways to mistake a percentile."""

    def mistakes(case: Case) -> dict[str, float | None]:
        logs, q = logs_of(case), case["q"]
        values = sorted(v for log in logs if (v := getattr(log, key)) is not None)
        if not values:
            return {"no request has a gap: there is no TPOT to report, return None": 0.0}
        rank = max(math.ceil(q / 100 * len(values)), 1)
        with_zeros = [getattr(log, key) or 0.0 for log in logs]
        return {
            "this is the mean, in which a long wait hides: a percentile was asked for":
                float(np.mean(values)),
            "single tokens have no TPOT: leave them out, a 0 makes the server look faster":
                float(np.percentile(with_zeros, q)),
            "this is the greatest value, not the percentile": values[-1],
            "this takes a neighbour instead of interpolating between the two":
                values[rank - 1],
            "this takes the lower neighbour instead of interpolating between the two":
                values[int(q / 100 * (len(values) - 1))],
            "this is the other end: q % of the values lie *below* a percentile":
                float(np.percentile(values, 100 - q)),
        }  # fmt: skip

    return mistakes


def goodput_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to mistake what is left of the throughput."""
    logs, slo = logs_of(case), SLO(ttft=case["max_ttft"], tpot=case["max_tpot"])
    span = metrics.makespan(logs)
    first = [log.ttft <= slo.ttft for log in logs]
    gaps = [log.tpot is None or log.tpot <= slo.tpot for log in logs]
    long_only = [log.tpot is not None and log.tpot <= slo.tpot for log in logs]
    strict = [log.ttft < slo.ttft and (log.tpot or 0.0) < slo.tpot for log in logs]
    both = [a and b for a, b in zip(first, gaps, strict=True)]
    tokens = sum(len(log.times) for log, kept in zip(logs, both, strict=True) if kept)
    counts = {
        "every promise must be kept: this counts requests that kept one of the two":
            sum(a or b for a, b in zip(first, gaps, strict=True)),
        "every promise must be kept: this looks at the first token only": sum(first),
        "every promise must be kept: this looks at the gaps only": sum(gaps),
        "a single token has no gap, so it cannot miss that promise":
            sum(a and b for a, b in zip(first, long_only, strict=True)),
        "a promise that is met exactly is kept: <=, not <": sum(strict),
        "these are tokens: goodput counts requests": tokens,
        "this counts all requests: those who missed a promise are to be left out": len(logs),
    }  # fmt: skip
    found: dict[str, float | None] = {reason: n / span for reason, n in counts.items()}
    found["this is a share: goodput is per second of the makespan"] = sum(both) / len(logs)
    found["this is a count: goodput is per second of the makespan"] = float(sum(both))
    return found


def saturation_mistakes(case: Case) -> dict[str, float | None]:
    """Ways to mistake the rate at which the queue explodes."""
    lens, batch, step = case["output_lens"], case["batch"], case["step_time"]
    prefill, mean = case["prefill_time"], float(np.mean(lens))
    right = saturation(case)
    return {
        "this ignores how long the answers are: a request takes as many steps as it has tokens":
            1 / (prefill + step / batch),
        "this ignores how long the answers are: these are steps times B, that is tokens per second":
            batch / step,
        "these are tokens per second: divide by the tokens of an answer": right * mean,
        "this plans for the longest answer: in the long run the mean one counts":
            1 / (prefill + max(lens) * step / batch),
        "this takes the middle answer: in the long run the mean one counts":
            1 / (prefill + float(np.median(lens)) * step / batch),
        "this ignores the prompts: each takes prefill_time, in which nobody decodes":
            batch / (mean * step),
        "this divides the prompt by the batch: each prompt is computed alone":
            batch / (prefill + mean * step),
        "this serves one at a time: a step gives a token to each of the batch":
            1 / (prefill + mean * step),
        "this is the seconds of one request: the rate is its inverse": 1 / right,
    }  # fmt: skip
