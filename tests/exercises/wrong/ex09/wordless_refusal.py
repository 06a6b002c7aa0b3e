"""Refuses, and does not say what.

Reason: the refusal does not say tpot
"""


def plan(cost, traffic, slo, gap):
    keep, line = 0.95, mean_step(cost, traffic)  # noqa: F821
    batch = largest_batch(line.seconds, keep * slo.tpot, 4095)  # noqa: F821
    if batch == 0:
        raise ValueError("impossible")
    more = largest_batch(  # noqa: F821
        lambda more: full_step(cost, traffic, batch, batch + more),  # noqa: F821
        keep * gap,
        4096 - batch,
    )
    if more == 0:
        raise ValueError("impossible")
    return batch, batch + more
