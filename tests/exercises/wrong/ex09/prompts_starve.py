"""Leaves the prompts a handful of tokens, so that nobody's typing ever stops.

Reason: tokens a step for prompts, so there are never so many inside
"""


def plan(cost, traffic, slo, gap):
    line = mean_step(cost, traffic)  # noqa: F821
    batch = largest_batch(line.seconds, 0.95 * slo.tpot, 4095)  # noqa: F821
    if batch == 0:
        raise ValueError("tpot is too short")
    if full_step(cost, traffic, batch, batch + 1) > gap:  # noqa: F821
        raise ValueError("gap is too short")
    return batch, batch + 16
