"""Believes that a log is in order.

Reason: need not be the first arrival
"""

import numpy as np


def summary(log, q):
    found = [request_metrics(arrival, times) for arrival, times in log]  # noqa: F821
    tpot = [one["tpot"] for one in found if one["tpot"] is not None]
    span = log[-1][1][-1] - log[0][0]
    span = span if span > 0 else 1.0
    return {
        "throughput": sum(len(times) for _, times in log) / span,
        "ttft": float(np.percentile([one["ttft"] for one in found], q)),
        "tpot": float(np.percentile(tpot, q)) if tpot else None,
    }
