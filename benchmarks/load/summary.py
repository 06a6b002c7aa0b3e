"""What a run under load comes to: who was served, how fast, and how many as promised."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.load.answers import Answer
from minillm_serve.sim import metrics
from minillm_serve.sim.metrics import SLO

QUANTILES = (50, 90, 95, 99)
#: Kinds of problems that are printed.
MOST_PROBLEMS = 5


def summarise(answers: Sequence[Answer], wanted: Sequence[int], slo: SLO) -> dict[str, Any]:
    """The figures of one run. Times in seconds, rates per second.

    Args:
        answers: of all requests.
        wanted: how many tokens each was to have.
        slo: what was promised to whoever was served.

    Returns:
        Counts of requests; output_tok_s, requests_s and goodput of those who were served, over the
        time from the first arrival to the last token; share_as_promised, of all who asked;
        latencies of the served, as mean, percentiles and maximum. `itl` is what a reader sees, the
        time between two pieces of text; `late` is how late the client was to send a request.
    """
    served = [answer for answer in answers if answer.is_served]
    refused = [answer for answer in answers if answer.is_refused]
    failed = [answer for answer in answers if not (answer.is_served or answer.is_refused)]
    logs = [answer.token_log() for answer in served]
    found: dict[str, Any] = {
        "requests": len(answers),
        "served": len(served),
        "refused": len(refused),
        "failed": len(failed),
        "problems": dict(Counter(str(answer.problem) for answer in [*refused, *failed])),
        "of_other_length": sum(
            answer.is_served and answer.output_tokens != length
            for answer, length in zip(answers, wanted, strict=True)
        ),
        "prompt_tokens": sum(answer.prompt_tokens for answer in served),
        "output_tokens": sum(answer.output_tokens for answer in served),
        "late": spread([answer.sent - answer.due for answer in answers]),
    }
    if not logs:
        return found
    gaps = [b - a for answer in served for a, b in pairwise(answer.pieces)]
    tpots = [log.tpot for log in logs if log.tpot is not None]
    return found | {
        "seconds": metrics.makespan(logs),
        "output_tok_s": metrics.throughput(logs),
        "requests_s": metrics.request_rate(logs),
        "goodput": metrics.goodput(logs, slo),
        "share_as_promised": sum(map(slo.met_by, logs)) / len(answers),
        "ttft": spread([log.ttft for log in logs]),
        "tpot": spread(tpots),
        "itl": spread(gaps),
        "e2e": spread([log.e2e for log in logs]),
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, percentiles and maximum; None if there are no values."""
    if not values:
        return None
    percentiles = {f"p{q}": metrics.percentile(values, q) for q in QUANTILES}
    return {"mean": math.fsum(values) / len(values), **percentiles, "max": max(values)}


def table(found: dict[str, Any]) -> str:
    """The figures of one run, to read."""
    counts = "{requests} requests: {served} served, {refused} refused, {failed} failed"
    lines = [f"  {counts.format_map(found)}"]
    problems = Counter(found["problems"]).most_common()
    lines += [f"  {count:6} x {problem}" for problem, count in problems[:MOST_PROBLEMS]]
    if (more := len(problems) - MOST_PROBLEMS) > 0:
        lines.append(f"         and {more} other problems")
    if found["of_other_length"]:
        lines.append(f"  {found['of_other_length']} answers are not as long as they were to be")
    if not found["served"]:
        return "\n".join(lines)
    lines.append(
        "  {output_tok_s:.1f} output tok/s, {requests_s:.2f} requests/s, goodput {goodput:.2f}/s "
        "({share_as_promised:.0%} of all as promised), {seconds:.1f} s".format_map(found)
    )
    lines.append(f"  {'ms':6}" + "".join(f"{name:>9}" for name in found["late"]))
    for name in ("ttft", "tpot", "itl", "e2e", "late"):
        if found[name] is not None:
            lines.append(f"  {name:6}" + "".join(f"{1e3 * v:9.1f}" for v in found[name].values()))
    return "\n".join(lines)
