"""Counts a single token as a broken promise.

Reason: a single token has no gap, so it cannot miss that promise
"""


def goodput(log, max_ttft, max_tpot):
    span = max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)
    kept = 0
    for arrival, times in log:
        one = request_metrics(arrival, times)  # noqa: F821
        in_time = one["ttft"] <= max_ttft
        kept += in_time and one["tpot"] is not None and one["tpot"] <= max_tpot
    return kept / span
