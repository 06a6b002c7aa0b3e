"""Serves one at a time if no promise can be kept, and says nothing.

Reason: it plans what cannot be kept: somebody will be told that it can
"""


def plan(cost, traffic, slo, gap):
    line = mean_step(cost, traffic)  # noqa: F821
    batch = max(1, largest_batch(line.seconds, 0.95 * slo.tpot, 4095))  # noqa: F821
    more = largest_batch(  # noqa: F821
        lambda more: full_step(cost, traffic, batch, batch + more),  # noqa: F821
        0.95 * gap,
        4096 - batch,
    )
    return batch, batch + max(1, more)
