"""Adds the latencies up, as if all had run one after the other.

Reason: divide by the makespan, not by the sum of their latencies
"""

import numpy as np


def summary(log, q):
    found = [request_metrics(arrival, times) for arrival, times in log]  # noqa: F821
    tpot = [one["tpot"] for one in found if one["tpot"] is not None]
    span = sum(one["e2e"] for one in found)
    return {
        "throughput": sum(len(times) for _, times in log) / span,
        "ttft": float(np.percentile([one["ttft"] for one in found], q)),
        "tpot": float(np.percentile(tpot, q)) if tpot else None,
    }
