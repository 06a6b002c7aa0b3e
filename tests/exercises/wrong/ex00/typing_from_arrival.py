"""Counts the empty screen as typing.

Reason: this counts from the arrival
"""


def request_metrics(arrival, times):
    gaps = len(times) - 1
    return {
        "ttft": times[0] - arrival,
        "tpot": (times[-1] - arrival) / len(times) if gaps else None,
        "e2e": times[-1] - arrival,
    }
