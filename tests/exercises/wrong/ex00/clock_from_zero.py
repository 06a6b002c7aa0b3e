"""Believes that the clock started with the log.

Reason: the clock did not start at 0
"""

import numpy as np


def summary(log, q):
    found = [request_metrics(arrival, times) for arrival, times in log]  # noqa: F821
    tpot = [one["tpot"] for one in found if one["tpot"] is not None]
    span = max(times[-1] for _, times in log)
    return {
        "throughput": sum(len(times) for _, times in log) / span,
        "ttft": float(np.percentile([one["ttft"] for one in found], q)),
        "tpot": float(np.percentile(tpot, q)) if tpot else None,
    }
