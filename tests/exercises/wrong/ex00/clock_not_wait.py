"""Reads the clock instead of measuring a wait.

Reason: this is a moment on the clock, not a wait
"""


def request_metrics(arrival, times):
    gaps = len(times) - 1
    return {
        "ttft": times[0],
        "tpot": (times[-1] - times[0]) / gaps if gaps else None,
        "e2e": times[-1] - arrival,
    }
