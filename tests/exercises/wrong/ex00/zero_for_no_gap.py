"""Says that a single token was typed infinitely fast.

Reason: a single token has no gap: 0 would look infinitely fast
"""


def request_metrics(arrival, times):
    gaps = len(times) - 1
    return {
        "ttft": times[0] - arrival,
        "tpot": (times[-1] - times[0]) / gaps if gaps else 0.0,
        "e2e": times[-1] - arrival,
    }
