"""Does not think of a single token.

Reason: it raised ZeroDivisionError
"""


def request_metrics(arrival, times):
    gaps = len(times) - 1
    return {
        "ttft": times[0] - arrival,
        "tpot": (times[-1] - times[0]) / gaps,
        "e2e": times[-1] - arrival,
    }
