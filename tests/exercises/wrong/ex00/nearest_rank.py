"""Takes a neighbour for the percentile.

Reason: instead of interpolating between the two
"""

import numpy as np


def summary(log, q):
    found = [request_metrics(arrival, times) for arrival, times in log]  # noqa: F821
    tpot = [one["tpot"] for one in found if one["tpot"] is not None]
    span = max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)
    return {
        "throughput": sum(len(times) for _, times in log) / span,
        "ttft": sorted(one["ttft"] for one in found)[int(q / 100 * (len(found) - 1))],
        "tpot": float(np.percentile(tpot, q)) if tpot else None,
    }
