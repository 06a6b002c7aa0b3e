"""Keeps half of every promise back.

Reason: that are bearable, and people are turned away
"""


def plan(cost, traffic, slo, gap):
    line = mean_step(cost, traffic)  # noqa: F821
    batch = max(1, largest_batch(line.seconds, slo.tpot, 4095) // 3)  # noqa: F821
    if line.seconds(1) > slo.tpot:
        raise ValueError("tpot is too short")
    more = largest_batch(  # noqa: F821
        lambda more: full_step(cost, traffic, batch, batch + more),  # noqa: F821
        0.95 * gap,
        4096 - batch,
    )
    if more == 0:
        raise ValueError("gap is too short")
    return batch, batch + more
