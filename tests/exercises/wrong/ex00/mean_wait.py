"""Gives the mean, in which the tail hides.

Reason: this is the mean, in which a long wait hides
"""

import numpy as np


def summary(log, q):
    found = [request_metrics(arrival, times) for arrival, times in log]  # noqa: F821
    tpot = [one["tpot"] for one in found if one["tpot"] is not None]
    span = max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)
    return {
        "throughput": sum(len(times) for _, times in log) / span,
        "ttft": float(np.mean([one["ttft"] for one in found])),
        "tpot": float(np.percentile(tpot, q)) if tpot else None,
    }
