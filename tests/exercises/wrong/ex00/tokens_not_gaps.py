"""Divides by the tokens, of which there is one more than gaps.

Reason: there are n - 1 gaps, and this divides by n
"""


def request_metrics(arrival, times):
    gaps = len(times) - 1
    return {
        "ttft": times[0] - arrival,
        "tpot": (times[-1] - times[0]) / len(times) if gaps else None,
        "e2e": times[-1] - arrival,
    }
