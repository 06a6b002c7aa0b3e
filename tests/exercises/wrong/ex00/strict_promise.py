"""Breaks a promise that was met exactly.

Reason: a promise that is met exactly is kept
"""


def goodput(log, max_ttft, max_tpot):
    span = max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)
    kept = 0
    for arrival, times in log:
        one = request_metrics(arrival, times)  # noqa: F821
        in_time = one["ttft"] < max_ttft
        kept += in_time and (one["tpot"] is None or one["tpot"] < max_tpot)
    return kept / span
