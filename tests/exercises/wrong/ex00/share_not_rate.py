"""Gives the share of those who were served well.

Reason: this is a share: goodput is per second
"""


def goodput(log, max_ttft, max_tpot):
    kept = 0
    for arrival, times in log:
        one = request_metrics(arrival, times)  # noqa: F821
        in_time = one["ttft"] <= max_ttft
        kept += in_time and (one["tpot"] is None or one["tpot"] <= max_tpot)
    return kept / len(log)
