"""Forgets the second promise.

Reason: this looks at the first token only
"""


def goodput(log, max_ttft, max_tpot):
    span = max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)
    kept = 0
    for arrival, times in log:
        one = request_metrics(arrival, times)  # noqa: F821
        kept += one["ttft"] <= max_ttft
    return kept / span
